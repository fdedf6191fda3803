"""Turn sequences of tokens into words, to compare them with phrases (no fairseq)."""

from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from ..vocabulary import Vocabulary
from .words import WordSplitter, strip_word

FIRST_WORD = 5  # ids below are special, in a vocabulary of words


class Word(NamedTuple):
    """A word's text, and its tokens ``[first, end)``; the text "" is a boundary, punctuation does not count as a word."""

    text: str
    first: int
    end: int


BOUNDARY = Word("", 0, 0)


def fold(text: str, keep_case: bool) -> str:
    """Case-fold a text, as the PMI masker does."""
    return text if keep_case else text.casefold()


def read_words(
    tokens: Sequence[int],
    begins: np.ndarray,
    maskable: np.ndarray,
    decode: Callable[[Tuple[int, ...]], str],
    keep_case: bool = False,
) -> List[Word]:
    """Detokenise a sequence ``[T]``.

    Punctuation at the ends of a word is a word of its own, as for the PMI masker, if the tokenizer keeps it apart; else it is
    a boundary.

    Args:
        begins: bool ``[T]``, where words begin.
        maskable: bool ``[V]``; the other tokens are boundaries.
        decode: gives the text of neighbouring tokens.
    """
    row: List[Word] = []
    first = 0
    for end in range(1, len(tokens) + 1):
        last = end == len(tokens) or begins[end] or not maskable[tokens[end]] or not maskable[tokens[first]]
        if last:
            ids = tuple(int(token) for token in tokens[first:end])
            row += _read_word(ids, first, decode, keep_case) if maskable[tokens[first]] else [BOUNDARY]
            first = end
    return row


def _read_word(ids: Tuple[int, ...], at: int, decode: Callable[[Tuple[int, ...]], str], keep_case: bool) -> List[Word]:
    pieces = [decode((token,)).strip() for token in ids]
    # part of a character of several bytes decodes to a replacement character, which is a symbol
    marks = [bool(piece) and "\ufffd" not in piece and not strip_word(piece)[0] for piece in pieces]
    first, end = 0, len(ids)
    while end and marks[end - 1]:
        end -= 1
    while first < end and (marks[first] or not pieces[first]):
        first += 1
    if first == end:
        return _punctuation(ids, at, decode, keep_case) or [BOUNDARY]
    if not any(marks[:first]):
        first = 0  # pieces without text, such as the mark of a word's begin, are the word's
    text, before, after = strip_word(decode(ids[first:end]).strip())
    row = _punctuation(ids[:first], at, decode, keep_case) + [BOUNDARY] * before
    row += [Word(fold(text, keep_case), at + first, at + end)] + [BOUNDARY] * after
    return row + _punctuation(ids[end:], at + end, decode, keep_case)


def _punctuation(ids: Tuple[int, ...], at: int, decode: Callable[[Tuple[int, ...]], str], keep_case: bool) -> List[Word]:
    text = fold(decode(ids).strip(), keep_case) if ids else ""
    return [Word(text, at, at + len(ids))] if text else []


def split_rows(text: str, splitter: WordSplitter, longest: int) -> List[List[str]]:
    """Words of each line, ``""`` at boundaries; lines of more than ``longest`` words are cut."""
    rows = []
    for line in text.rstrip("\n").split("\n"):
        words, ids, segments = splitter.split(line)
        row: List[str] = []
        for i, number in enumerate(ids):
            if i and i % longest == 0:
                rows.append(row)
                row = []
            elif i and segments[i] != segments[i - 1]:
                row.append("")
            row.append(fold(words[number], splitter.keep_case))
        rows.append(row)
    return [row for row in rows if row]


def number_words(rows: Sequence[Sequence[str]]) -> Tuple[Vocabulary, List[List[Word]], List[np.ndarray]]:
    """Make every word a token; returns the vocabulary, the lines as words (which count ``<s>``), and as ids without ``<s>``."""
    numbers: Dict[str, int] = {}
    words, tokens = [], []
    for row in rows:
        line, ids = [], []
        for text in row:
            if text:
                ids.append(numbers.setdefault(text, FIRST_WORD + len(numbers)))
            line.append(Word(text, len(ids), len(ids) + 1) if text else BOUNDARY)
        words.append(line)
        tokens.append(np.array(ids, dtype=np.int64))
    size = FIRST_WORD + len(numbers)
    maskable = np.arange(size) >= FIRST_WORD
    vocabulary = Vocabulary(
        pad=1,
        bos=0,
        eos=2,
        mask=4,
        maskable=maskable,
        replacements=np.flatnonzero(maskable),
        find_word_begins=lambda: np.ones(size, dtype=bool),
        find_pieces=lambda: [b""] * FIRST_WORD + [text.encode("utf-8") for text in numbers],
    )
    return vocabulary, words, tokens
