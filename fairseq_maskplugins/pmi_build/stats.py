"""Measure how a list fits a text, and how often whole phrases are masked; by comparing words, without hashes (no fairseq)."""

from typing import Dict, Iterable, List, NamedTuple, Sequence, Set, Tuple

import numpy as np

from ..decoupled_mlm.plan import Planner
from ..maskers.phrase_hash import cut_punctuation
from ..maskers.phrase_list import parse_phrases, read_bytes
from ..rng import SequenceDraws
from .rows import Word, fold
from .words import strip_word


class Occurrence(NamedTuple):
    """A phrase in a row: ``words`` of them, made of tokens ``[first, end)``."""

    row: int
    first: int
    end: int
    words: int


def read_list(path: str, keep_case: bool = False) -> Set[str]:
    """Read the phrases of a list by the PMI masker's rules, punctuation set apart."""
    phrases: Set[str] = set()
    for batch in parse_phrases(path, read_bytes(path, ""), ""):
        lines = cut_punctuation(fold("\n".join(batch), keep_case)).split("\n")
        phrases.update(" ".join(line.split()) for line in lines)
    return phrases


def find_occurrences(rows: Sequence[Sequence[Word]], phrases: Set[str]) -> List[Occurrence]:
    """Find phrases. One inside a longer one does not count; ones that overlap in part all do."""
    longest = max(phrase.count(" ") + 1 for phrase in phrases)
    begins = {phrase.split(" ", 1)[0] for phrase in phrases if " " in phrase}
    occurrences = []
    for number, row in enumerate(rows):
        reached = 0  # words before this one are inside a phrase that begins further left
        for i, word in enumerate(row):
            if word.text not in begins:
                continue
            for end in range(min(len(row), i + longest), i + 1, -1):
                if " ".join(part.text for part in row[i:end]) in phrases and end > reached:
                    occurrences.append(Occurrence(number, word.first, row[end - 1].end, end - i))
                    reached = end
                    break
    return occurrences


def count_covered(rows: Sequence[Sequence[Word]], occurrences: Iterable[Occurrence]) -> Tuple[int, int]:
    """Number of words inside a phrase, and of all words, without punctuation."""
    inside: Dict[int, Set[int]] = {}
    for one in occurrences:
        inside.setdefault(one.row, set()).update(range(one.first, one.end))
    covered = sum(word.first in inside[number] for number in inside for word in rows[number] if _is_word(word))
    return covered, sum(_is_word(word) for row in rows for word in row)


def _is_word(word: Word) -> bool:
    return bool(strip_word(word.text)[0])


def count_masked(
    planner: Planner,
    tokens: np.ndarray,
    ids: np.ndarray,
    occurrences: Sequence[Occurrence],
    rates: Sequence[float],
    seed: int,
    epochs: int,
) -> np.ndarray:
    """Mask a batch ``[B, T]`` in epochs 1 to ``epochs`` and count, for each of ``R`` rates, the phrases whose every token is
    corrupted: int64 ``[R]``, out of ``epochs * len(occurrences)``.

    Source: "Should You Mask 15%?" (arXiv 2202.08005), figure 6.
    """
    masked = np.zeros(len(rates), dtype=np.int64)
    if not occurrences:
        return masked
    row, first, end = (np.array(column) for column in list(zip(*occurrences))[:3])
    width = tokens.shape[1]
    ends = np.stack([row * width + first, row * width + end], axis=1).ravel()
    for epoch in range(1, epochs + 1):
        plan = planner.draw(tokens, SequenceDraws(seed, epoch, ids))
        # a phrase is selected whole when its deepest token is; one more place, because an end may be the batch's
        deepest = np.maximum.reduceat(np.append(plan.depth.ravel(), np.inf), ends)[::2]
        for i, rate in enumerate(rates):
            masked[i] += np.count_nonzero(deepest <= rate * plan.count[row])
    return masked


def uniform_probability(lengths: np.ndarray, counts: np.ndarray, rate: float) -> float:
    """The mean probability that ``k`` given tokens of ``n`` are all corrupted by ``--masker uniform`` at a rate.

    Args:
        lengths, counts: ``k`` and ``n`` of each phrase, the tokens in it and the maskable tokens of its sequence, ``[P]``.
    """
    below = np.floor(rate * counts)
    probability = np.zeros(len(lengths))
    for selected, weight in ((below, 1 - (rate * counts - below)), (below + 1, rate * counts - below)):
        chance = np.ones(len(lengths))
        for i in range(int(lengths.max(initial=0))):
            chance *= np.where(i < lengths, np.maximum(selected - i, 0) / np.maximum(counts - i, 1), 1.0)
        probability += weight * chance
    return float(probability.mean())


class Measured(NamedTuple):
    """Of a masker: ``masked[i]`` of ``trials`` phrases were masked whole at ``rates[i]``."""

    masker: str
    rates: Sequence[float]
    masked: np.ndarray
    trials: int

    def probability(self, i: int) -> float:
        return self.masked[i] / self.trials if self.trials else float("nan")
