"""Count the n-grams of a batch of lines: the function that both engines run (no fairseq)."""

from hashlib import blake2b
from typing import Dict, Iterator, List, NamedTuple, Tuple

import numpy as np

from .words import WordSplitter

MAX_N = 5
_BASE = np.uint64(0x9E3779B97F4A7C15)


class Partial(NamedTuple):
    """Partial counts; an n-gram may occur more than once.

    Attributes:
        words, keys, counts: the ``V`` different words, their 64-bit hashes and their counts, int64 ``[V]``.
        grams: for n from 2 to 5 the n-grams as n columns of keys, each ``[G_n]``, and their counts, ``[G_n]``.
    """

    words: List[str]
    keys: np.ndarray
    counts: np.ndarray
    grams: Dict[int, Tuple[List[np.ndarray], np.ndarray]]


def word_key(word: str) -> int:
    """The 64-bit key of a word, the same everywhere; signed, because SQL's integers are."""
    return int.from_bytes(blake2b(word.encode("utf-8"), digest_size=8).digest(), "little", signed=True)


def count_batch(text: str, splitter: WordSplitter) -> Partial:
    """Count the n-grams of 1 to 5 words in lines of text (joined by ``"\\n"``); none crosses a boundary."""
    words, ids, segments = splitter.split(text)
    keys = np.array([word_key(word) for word in words], dtype=np.int64)
    counts = np.bincount(ids, minlength=len(words)).astype(np.int64)
    row = keys[ids]
    grams = {n: _count_equal(row, hashes, begins, n) for n, begins, hashes in walk_grams(row, segments)}
    return Partial(words, keys, counts, grams)


def walk_grams(row: np.ndarray, segments: np.ndarray) -> Iterator[Tuple[int, np.ndarray, np.ndarray]]:
    """Yield, for n from 2 to 5: n, the positions where n-grams begin (int64 ``[M]``), and their hashes (uint64 ``[M]``).

    Args:
        row: keys of the words, int64 ``[N]``.
        segments: int64 ``[N]``, as in :class:`~fairseq_maskplugins.pmi_build.words.Split`.
    """
    for n in range(2, MAX_N + 1):
        size = max(0, len(row) - n + 1)
        begins = np.flatnonzero(segments[:size] == segments[n - 1 :][:size])
        yield n, begins, hash_grams([row[begins + offset] for offset in range(n)])


def hash_grams(columns: List[np.ndarray]) -> np.ndarray:
    """64-bit hashes of n-grams given as n columns of word keys, int64 ``[M]`` each. *Shape:* uint64 ``[M]``."""
    mixed = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        # a bijection of the word so far, added to, and its high half folded into the low half
        mixed = (mixed ^ (mixed >> np.uint64(32))) * _BASE + column.view(np.uint64)
    return mixed


def _count_equal(row: np.ndarray, hashes: np.ndarray, begins: np.ndarray, n: int) -> Tuple[List[np.ndarray], np.ndarray]:
    """Count equal n-grams, sorted by the high bits of their hashes with the position in the low bits. N-grams whose high bits
    collide are told apart by their words, at worst in several groups of the same n-gram."""
    if len(begins) == 0:
        return [np.zeros(0, dtype=np.int64) for _ in range(n)], np.zeros(0, dtype=np.int64)
    low = np.uint64((1 << max(1, int(begins[-1]).bit_length())) - 1)
    order = (hashes & ~low) | begins.astype(np.uint64)
    order.sort()
    at = (order & low).view(np.int64)
    new = np.zeros(len(at), dtype=bool)
    new[0] = True
    columns = [row[at + offset] for offset in range(n)]
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    first = np.flatnonzero(new)
    return [column[first] for column in columns], np.diff(np.append(first, len(at)))
