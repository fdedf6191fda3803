"""Scores of phrases, and the choice of the list (no fairseq)."""

import math
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ..errors import UsageError

SCORES = ("pmi", "frequency")
# lengths of the entries of a list, over and over: of 8, 4 have two words, 2 three, 1 four and 1 five
PATTERN = (2, 3, 2, 4, 2, 3, 2, 5)
MILLION = 1_000_000

Spans = Dict[Tuple[int, int], np.ndarray]


def segmentations(n: int) -> List[List[Tuple[int, int]]]:
    """All ``2^(n-1) - 1`` ways to cut n words into two or more parts, as ``(first, last)`` pairs counted from 1."""
    ways = []
    for cuts in range(1, 1 << (n - 1)):
        ends = [i for i in range(1, n) if cuts >> (i - 1) & 1] + [n]
        ways.append([(1 + (ends[k - 1] if k else 0), end) for k, end in enumerate(ends)])
    return ways


def score_phrases(counts: Spans, totals: Sequence[int], n: int, kind: str = "pmi") -> np.ndarray:
    """Score n-grams from the counts of all their parts: int64 ``[G]``, millionths of a nat, rounded.

    ``PMI_n = min over segmentations s of log(p(w1..wn) / prod p(s_i))``, where ``p`` of a k-gram is its count over the number
    of k-grams. ``frequency`` squares the numerator. Source: PMI-Masking (arXiv 2010.01825), equation 3, and its repository.

    Args:
        counts: int64 ``[G]`` for every ``(i, j)``, ``1 <= i <= j <= n``: the number of occurrences of words i to j.
        totals: ``totals[k]`` is the number of k-grams in the corpus.
    """
    logs = {(i, j): np.log(value) - math.log(totals[j - i + 1]) for (i, j), value in counts.items()}
    best = np.full(len(counts[1, n]), -np.inf)
    for way in segmentations(n):
        parts = np.zeros(len(best))
        for part in way:
            parts += logs[part]
        best = np.maximum(best, parts)
    power = 2 if kind == "frequency" else 1
    return np.rint((power * logs[1, n] - best) * MILLION).astype(np.int64)


class Phrase(NamedTuple):
    """A line of the list; ``micro`` is the score in millionths."""

    text: str
    micro: int
    count: int

    def line(self) -> str:
        sign, size = "-" if self.micro < 0 else "", abs(self.micro)
        return f"{self.text}\t{sign}{size // MILLION}.{size % MILLION:06d}\t{self.count}\n"


class Best:
    """The ``limit`` (None: all) phrases of one length with the highest scores, ties by their UTF-8 bytes."""

    def __init__(self, limit: Optional[int]):
        self.limit, self.phrases, self.seen = limit, [], 0
        self.worst: Optional[int] = None  # score of the last that was kept: what is below it can't come in

    def add(self, phrases: Sequence[str], micro: np.ndarray, counts: np.ndarray) -> None:
        self.seen += len(phrases)
        if self.worst is not None:
            kept = np.flatnonzero(micro >= self.worst)
            phrases, micro, counts = [phrases[i] for i in kept], micro[kept], counts[kept]
        self.phrases += map(Phrase, phrases, micro.tolist(), counts.tolist())
        if self.limit is not None and len(self.phrases) > self.limit + self.limit // 4 + 100_000:
            self._cut()

    def _cut(self) -> None:
        # code points order like UTF-8 bytes
        self.phrases.sort(key=lambda phrase: (-phrase.micro, phrase.text))
        if self.limit is not None and len(self.phrases) > self.limit:
            del self.phrases[self.limit :]
            self.worst = self.phrases[-1].micro if self.phrases else None

    def ranked(self) -> List[Phrase]:
        self._cut()
        return self.phrases


def slots(size: int) -> Dict[int, int]:
    """How many entries of each length a list of ``size`` entries has room for: 50%, 25%, 12.5% and 12.5%."""
    full, rest = divmod(size, len(PATTERN))
    return {n: full * PATTERN.count(n) + PATTERN[:rest].count(n) for n in sorted(set(PATTERN))}


def merge(ranked: Dict[int, List[Phrase]]) -> Iterator[Tuple[int, Phrase]]:
    """Yield slots (from 0) and phrases in the order of a list: lengths take turns as in ``PATTERN``, each gives its best first.

    The first S slots are a list of size S. Slots of a length that has run out stay empty.
    """
    taken = dict.fromkeys(ranked, 0)
    left = sum(map(len, ranked.values()))
    slot = 0
    while left:
        n = PATTERN[slot % len(PATTERN)]
        if taken[n] < len(ranked[n]):
            yield slot, ranked[n][taken[n]]
            taken[n] += 1
            left -= 1
        slot += 1


def check_choice(kind: str, min_count: int, size: Optional[int], coverage: Optional[float]) -> None:
    """Refuse values out of range."""
    if kind not in SCORES:
        raise UsageError(f"--score must be one of {', '.join(SCORES)}, got {kind!r}")
    if min_count < 1:
        raise UsageError(f"--min-count must be at least 1, got {min_count}")
    if size is not None and size < 1:
        raise UsageError(f"--size must be at least 1, got {size}")
    if coverage is not None and not 0.0 < coverage <= 1.0:
        raise UsageError(f"--coverage must lie in (0, 1], got {coverage:g}")
