"""What a fairseq dictionary and ``--bpe`` say about masking, as plain arrays."""

from functools import partial
from typing import Any, Callable, Dict, List

import numpy as np
from fairseq.data import Dictionary, encoders

from ..errors import UsageError
from ..files import require_file
from ..pieces import read_piece
from ..vocabulary import Vocabulary, is_padding_word

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def build_vocabulary(dictionary: Dictionary, by_frequency: bool, bpe: Any) -> Vocabulary:
    """The facts about a dictionary (with ``<mask>`` added) that masking needs.

    Args:
        by_frequency: random replacements follow the dictionary's counts (``--freq-weighted-replacement``).
        bpe: configuration of ``--bpe``, or None.
    """
    size = len(dictionary)
    special = np.zeros(size, dtype=bool)
    special[: dictionary.nspecial] = True
    # a dictionary file may list a special again, marked to overwrite the first
    special[[i for i, symbol in enumerate(dictionary.symbols) if symbol in SPECIALS]] = True
    filler = np.array([is_padding_word(symbol) for symbol in dictionary.symbols])
    replacements = np.flatnonzero(~special & ~filler)
    if len(replacements) == 0:
        raise UsageError("dict.txt: holds no words, only specials")
    cumulative = None
    if by_frequency:
        counts = np.asarray(dictionary.count, dtype=np.float64)[replacements]
        if counts.sum() <= 0:
            raise UsageError("--freq-weighted-replacement needs counts in dict.txt, all of them are 0")
        cumulative = np.cumsum(counts) / counts.sum()
    pieces = None if bpe is None else _Pieces(dictionary, bpe, special | filler)
    return Vocabulary(
        pad=dictionary.pad(),
        bos=dictionary.bos(),
        eos=dictionary.eos(),
        mask=dictionary.index("<mask>"),
        maskable=~special,
        replacements=replacements,
        cumulative=cumulative,
        find_word_begins=None if pieces is None else pieces.find_word_begins,
        find_pieces=partial(_read_symbols, dictionary.symbols, special) if pieces is None else pieces.find_pieces,
    )


def _read_symbols(symbols: List[str], special: np.ndarray) -> List[bytes]:
    """Without a tokenizer an entry's text is the entry."""
    return [b"" if special[i] else symbol.encode("utf-8") for i, symbol in enumerate(symbols)]


class _Pieces:
    """What ``--bpe`` knows of the dictionary's entries. Its model is loaded when something is asked for, once."""

    def __init__(self, dictionary: Dictionary, bpe: Any, outside: np.ndarray):
        self.symbols, self.bpe, self.outside = dictionary.symbols, bpe, outside
        self.name = bpe if isinstance(bpe, str) else bpe.get("_name")
        self._encoder: Any = None

    def __getstate__(self) -> Dict[str, Any]:
        # data workers that are spawned ask nothing; neither every tokenizer nor fairseq's configuration can be pickled
        return {**self.__dict__, "bpe": self.name, "_encoder": None}

    def _load(self) -> Any:
        if self._encoder is None:
            require_tokenizer_files(self.bpe)
            try:
                self._encoder = encoders.build_bpe(self.bpe)
            except Exception as error:  # a missing or damaged model file, in the words of the tokenizer's own library
                reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
                raise UsageError(f"--bpe {self.name}: can't load it: {reason}")
        return self._encoder

    def _ask(self, question: Callable[[str], Any], special: Any) -> List[Any]:
        """Answers for all entries; ``special`` for those that are no pieces."""
        answers = []
        for symbol, outside in zip(self.symbols, self.outside):
            try:
                answers.append(special if outside else question(symbol))
            except (ValueError, KeyError, TypeError) as error:
                raise UsageError(f"--bpe {self.name} does not know {symbol!r} of dict.txt: is it the data's? ({error})")
        return answers

    def find_word_begins(self) -> np.ndarray:
        encoder = self._load()
        if not hasattr(encoder, "is_beginning_of_word"):
            raise UsageError(f"--bpe {self.name} does not say where words begin, so whole words can't be masked")
        return np.array(self._ask(encoder.is_beginning_of_word, True))

    def find_pieces(self) -> List[bytes]:
        encoder = self._load()
        return self._ask(lambda symbol: read_piece(self.name, encoder, symbol), b"")


def require_tokenizer_files(bpe: Any) -> None:
    """Refuse devices and pipes among the files of a configuration of ``--bpe``."""
    for name, value in bpe.items() if hasattr(bpe, "items") else ():
        if isinstance(value, str) and not name.startswith("_"):
            require_file(value, f"--{name.replace('_', '-')} ")
