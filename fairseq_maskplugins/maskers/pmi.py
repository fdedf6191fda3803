"""``--masker pmi``: phrases of a list are masked as one (PMI-Masking, arXiv 2010.01825)."""

from dataclasses import dataclass, field
from typing import Dict, Optional, Tuple

import numpy as np

from ..errors import UsageError
from ..rng import SequenceDraws
from ..vocabulary import Vocabulary
from .base import Masker, MaskerConfig, register_masker, require_words
from .phrase_hash import extend, fold, hash_bytes, is_partial, mix_word, powers
from .pmi_vocab import load_phrases
from .runs import starts_after_gap

UNITS = ("word", "token")
MAX_PARTS = 8  # pieces of a run of cut characters that is looked at


@dataclass
class PMIConfig(MaskerConfig):
    pmi_vocab: Optional[str] = field(
        default=None,
        metadata={
            "help": "--masker pmi: list of phrases, one a line, maybe with score and count after tabs; plain or gzip. "
            "A cache is kept beside it"
        },
    )
    pmi_unit: str = field(
        default="word",
        metadata={
            "help": "--masker pmi: what phrases are made of, word (needs --bpe) or token (every token is a word, for "
            "lists of characters or pieces)"
        },
    )
    pmi_match_case: bool = field(
        default=False, metadata={"help": "--masker pmi: tell upper from lower case when looking up phrases"}
    )


@register_masker("pmi", config=PMIConfig)
class PMIMasker(Masker):
    """A unit is a phrase of the list, or else a word; with ``pmi_unit = "token"`` every token is a word.

    Where a phrase contains another, the longer one counts. Where two overlap in part, one of them is chosen at random;
    of a chain of such phrases each is asked in random order and is in if it overlaps none that is in already. What is
    left of a phrase that lost, like every other token, is in whole-word units: phrases inside it are not looked for
    again. No phrase crosses a special. Punctuation at a phrase's edges is not part of its unit, unless the list has it.
    """

    default_budget = "whole"
    can_merge = False

    def __init__(self, config: PMIConfig, vocabulary: Vocabulary):
        super().__init__(config, vocabulary)
        if not config.pmi_vocab:
            raise UsageError("--masker pmi needs --pmi-vocab, a list of phrases (maskplugins pmi build makes one)")
        if config.pmi_unit not in UNITS:
            raise UsageError(f"--pmi-unit must be {' or '.join(UNITS)}, got {config.pmi_unit!r}")
        self.word_begins = None
        if config.pmi_unit == "word":
            self.word_begins = require_words(vocabulary, "--masker pmi with --pmi-unit word (the other is token)")
        if vocabulary.find_pieces is None:
            raise UsageError("--masker pmi needs the text of the dictionary's entries, which this --bpe does not tell")
        self.pieces = vocabulary.find_pieces()
        folded = [fold(piece, config.pmi_match_case) for piece in self.pieces]
        used = vocabulary.maskable
        self.size = np.array([len(data) for data, _ in folded], dtype=np.int32) * used
        self.hash = np.array([hash_bytes(data) for data, _ in folded], dtype=np.uint64) * used
        self.punctuation = np.array([only for _, only in folded]) & used
        self.empty = used & (self.size == 0)
        self.partial = np.array([is_partial(piece) for piece in self.pieces]) & used
        self._cut_marks: Dict[Tuple[int, ...], bool] = {}
        self.phrases = load_phrases(config.pmi_vocab, config.pmi_match_case)
        if self.phrases.count == 0:
            raise UsageError(f"--pmi-vocab {config.pmi_vocab} has no phrase of two words or more")
        self.longest = self.phrases.lengths[-1]
        self.powers = powers(256)

    def begin_units(self, tokens: np.ndarray, maskable: np.ndarray, draws: SequenceDraws) -> np.ndarray:
        starts = starts_after_gap(self.find_begins(tokens), maskable)
        words = self.split_punctuation(tokens, starts, maskable)
        place = np.flatnonzero(words)  # where words begin, in the flattened batch
        if len(place) == 0:
            return starts
        first, end = self.find_phrases(tokens, maskable, words, place)
        first, end = _drop_contained(first, end)
        first, end = self._settle_overlaps(first, end, place, tokens.shape[1], draws)
        flat = starts.ravel()
        for more in range(1, self.longest):
            flat[place[(first + more)[first + more < end]]] = False
        flat[place[first]] = True
        flat[place[end[end < len(place)]]] = True
        return starts

    def find_begins(self, tokens: np.ndarray) -> np.ndarray:
        """Where words begin. *Shape:* ids ``[B, T]`` to bool ``[B, T]``."""
        if self.word_begins is not None:
            return self.word_begins[tokens]
        return token_begins(self.empty, tokens)

    def split_punctuation(self, tokens: np.ndarray, starts: np.ndarray, maskable: np.ndarray) -> np.ndarray:
        """Where the words begin that phrases are made of: punctuation at a word's edges is a word of its own.

        *Shape:* ids and two bool arrays ``[B, T]`` to bool ``[B, T]``; ``starts`` are those of whole words, complete.
        """
        marks = self.punctuation[tokens].ravel()
        self._mark_cut_characters(marks, tokens, starts)
        bare = np.flatnonzero(self.empty[tokens])
        if len(bare):  # a piece that is only the mark of a word's begin goes with what follows
            marks[bare[bare + 1 < len(marks)]] = marks[bare[bare + 1 < len(marks)] + 1]
        inside = (maskable & ~starts).ravel()
        change = np.flatnonzero(inside[1:] & (marks[1:] != marks[:-1])) + 1
        if len(change) == 0:
            return starts
        word = np.cumsum(starts.ravel())[change]
        other = word[1:] != word[:-1]
        is_first, is_last = np.append(True, other), np.append(other, True)
        edges = change[np.where(marks[change], is_last, is_first)]
        words = starts.copy()
        words.ravel()[edges] = True
        return words

    def _mark_cut_characters(self, marks: np.ndarray, tokens: np.ndarray, starts: np.ndarray) -> None:
        """Set ``marks`` where byte-level pieces are punctuation only together: GPT-2 has curly quotes in two pieces."""
        partial = self.partial[tokens].ravel()
        if not partial.any():
            return
        flat = tokens.ravel()
        # runs of such pieces, each inside a word
        first = np.flatnonzero(partial & ~(np.append(False, partial[:-1]) & ~starts.ravel()))
        after = np.flatnonzero(~partial | starts.ravel())
        end = np.append(after, len(flat))[np.searchsorted(after, first, side="right")]
        asked = (end - first >= 2) & (end - first <= MAX_PARTS)
        for begin, stop in zip(first[asked].tolist(), end[asked].tolist()):
            ids = tuple(flat[begin:stop].tolist())
            if ids not in self._cut_marks:
                self._cut_marks[ids] = fold(b"".join(self.pieces[i] for i in ids), True)[1]
            marks[begin:stop] = self._cut_marks[ids]

    def find_phrases(
        self, tokens: np.ndarray, maskable: np.ndarray, words: np.ndarray, place: np.ndarray
    ) -> Tuple[np.ndarray, np.ndarray]:
        """The longest phrase that begins at each word, as numbers of its first word and of the word after its last.

        Words are numbered through the whole batch. *Shape:* ``int64 [M]`` each, ``M`` phrases, first words increasing.
        """
        word = self._hash_words(tokens, maskable, words, place)
        follows = maskable.ravel()[place - 1]  # at place 0 this is the batch's last token: no matter, see below
        follows &= place % tokens.shape[1] != 0
        block = np.cumsum(~follows)  # words of one block stand next to each other
        length = np.zeros(len(word), dtype=np.int64)
        phrase = word
        for number in range(2, min(self.longest, len(word)) + 1):
            phrase = extend(phrase[:-1], word[number - 1 :])
            if number in self.phrases.lengths:
                found = self.phrases.find(phrase)
                length[found[block[found] == block[found + number - 1]]] = number
        first = np.flatnonzero(length)
        return first, first + length[first]

    def _hash_words(self, tokens: np.ndarray, maskable: np.ndarray, words: np.ndarray, place: np.ndarray) -> np.ndarray:
        parts = self.hash[tokens].ravel()
        before = np.cumsum(self.size[tokens].ravel())  # bytes up to and with a token
        later = np.flatnonzero((maskable & ~words).ravel())
        if len(later):
            # the word that a token is in began after the bytes of the tokens before its first
            began = np.cumsum(words.ravel())[later] - 1
            offset = before[later - 1] - before[place][began] + self.size[tokens.ravel()[place]][began]
            if offset.max() >= len(self.powers):
                self.powers = powers(2 * int(offset.max()))
            parts[later] *= self.powers[offset]
        return mix_word(np.add.reduceat(parts, place))

    def _settle_overlaps(
        self, first: np.ndarray, end: np.ndarray, place: np.ndarray, width: int, draws: SequenceDraws
    ) -> Tuple[np.ndarray, np.ndarray]:
        """Choose among phrases that overlap. *Shape:* first and end ``[M]`` to fewer, increasing."""
        clash = first[1:] < end[:-1]
        contested = np.append(clash, False) | np.append(False, clash)
        if not contested.any():
            return first, end
        rows, columns = np.divmod(place[first[contested]], width)
        chance = draws.uniform_at("pmi-overlap", rows, columns)
        kept = ~contested
        kept[contested] = _choose(first[contested], end[contested], chance, self.longest)
        return first[kept], end[kept]


def token_begins(empty: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Word beginnings if tokens are words, bool ``[..., T]``: all but after entries without text (``empty``, bool ``[V]``),
    such as sentencepiece's mark of a word's beginning, which goes with the next token."""
    begins = np.ones(tokens.shape, dtype=bool)
    begins[..., 1:] = ~empty[tokens[..., :-1]]
    return begins


def _drop_contained(first: np.ndarray, end: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Leave out phrases that an earlier, longer one contains; ``first`` is increasing, and so is ``end`` after this."""
    kept = np.ones(len(first), dtype=bool)
    kept[1:] = end[1:] > np.maximum.accumulate(end)[:-1]
    return first[kept], end[kept]


def _choose(first: np.ndarray, end: np.ndarray, chance: np.ndarray, longest: int) -> np.ndarray:
    """Visit phrases in the order of ``chance``, highest first, and keep those that overlap none kept before; all at once.

    A phrase whose chance is higher than that of all it overlaps is kept, those that overlap it are dropped; and again with the
    rest, of which at least one is decided each time.

    Args:
        first, end: words of the phrases, ``[M]``, both strictly increasing.
        chance: ``[M]``; of two equal ones the earlier is higher.
        longest: words of the longest phrase; no two overlap that are ``longest`` or more apart in the list.
    """
    order = np.empty(len(first), dtype=np.int64)
    order[np.argsort(-chance, kind="stable")] = np.arange(len(first), 0, -1)
    chosen = np.zeros(len(first), dtype=bool)
    open_ = np.arange(len(first))
    while len(open_):
        begins, ends, rank = first[open_], end[open_], order[open_]
        wins = np.ones(len(open_), dtype=bool)
        overlaps = []
        for apart in range(1, min(longest, len(open_))):
            overlap = begins[apart:] < ends[:-apart]
            if not overlap.any():
                break
            overlaps.append((apart, overlap))
            wins[:-apart] &= ~overlap | (rank[:-apart] > rank[apart:])
            wins[apart:] &= ~overlap | (rank[apart:] > rank[:-apart])
        out = wins.copy()
        for apart, overlap in overlaps:
            out[:-apart] |= overlap & wins[apart:]
            out[apart:] |= overlap & wins[:-apart]
        chosen[open_[wins]] = True
        open_ = open_[~out]
    return chosen
