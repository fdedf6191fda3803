"""How a list fits a text, and how often a whole phrase is masked, for any masker (no fairseq).

Phrases are found here by comparing words, without the PMI masker's hashing: the measurement doesn't rest on what it measures.
"""

from typing import Dict, Iterable, List, NamedTuple, Sequence, Set, Tuple

import numpy as np

from ..decoupled_mlm.plan import Planner
from ..maskers.phrase_hash import cut_punctuation
from ..maskers.phrase_list import parse_phrases, read_bytes
from ..rng import RowDraws
from .rows import Word, fold
from .words import strip_word


class Occurrence(NamedTuple):
    """A phrase in a row: ``words`` of them, made of tokens ``[first, end)``."""

    row: int
    first: int
    end: int
    words: int


def read_list(path: str, keep_case: bool = False) -> Set[str]:
    """Read the phrases of a list by the PMI masker's rules, punctuation set apart; score and count, if any, are left aside.

    Raises:
        UsageError: what the masker refuses: see :func:`~fairseq_maskplugins.maskers.phrase_list.parse_phrases`.
    """
    phrases: Set[str] = set()
    for batch in parse_phrases(path, read_bytes(path, ""), ""):
        lines = cut_punctuation(fold("\n".join(batch), keep_case)).split("\n")
        phrases.update(" ".join(line.split()) for line in lines)
    return phrases


def find_occurrences(rows: Sequence[Sequence[Word]], phrases: Set[str]) -> List[Occurrence]:
    """Find phrases in rows. One that lies inside a longer one is left out; ones that overlap in part all count."""
    longest = max(phrase.count(" ") + 1 for phrase in phrases)
    begins = {phrase.split(" ", 1)[0] for phrase in phrases if " " in phrase}
    found = []
    for number, row in enumerate(rows):
        reached = 0  # words before this one are inside a phrase that begins further left
        for i, word in enumerate(row):
            if word.text not in begins:
                continue
            for end in range(min(len(row), i + longest), i + 1, -1):
                if " ".join(part.text for part in row[i:end]) in phrases and end > reached:
                    found.append(Occurrence(number, word.first, row[end - 1].end, end - i))
                    reached = end
                    break
    return found


def count_covered(rows: Sequence[Sequence[Word]], occurrences: Iterable[Occurrence]) -> Tuple[int, int]:
    """Number of words inside a phrase, and of all words; punctuation is none."""
    inside: Dict[int, Set[int]] = {}
    for found in occurrences:
        inside.setdefault(found.row, set()).update(range(found.first, found.end))
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
    """Mask a batch and count the phrases of which every token is selected.

    Selected is what the plan takes at a rate; with ``random_token_prob`` and ``leave_unmasked_prob`` some of it becomes
    something else than ``<mask>``.

    Args:
        planner: of the masker that is measured.
        tokens: ids, padded on the right. *Shape:* ``[B, T]``.
        ids: sample ids, ``[B]``.
        occurrences: phrases in these rows.
        rates: ``R`` rates in (0, 1].
        seed, epochs: masks are drawn for epochs 1 to ``epochs``.

    Returns:
        int64 ``[R]``, out of ``epochs * len(occurrences)``.

    Source: "Should You Mask 15%?" (arXiv 2202.08005), figure 6.
    """
    masked = np.zeros(len(rates), dtype=np.int64)
    if not occurrences:
        return masked
    row, first, end = (np.array(column) for column in list(zip(*occurrences))[:3])
    width = tokens.shape[1]
    ends = np.stack([row * width + first, row * width + end], axis=1).ravel()
    for epoch in range(1, epochs + 1):
        plan = planner.draw(tokens, RowDraws(seed, epoch, ids))
        # a phrase is selected whole when its deepest token is; one more place, because an end may be the batch's
        deepest = np.maximum.reduceat(np.append(plan.depth.ravel(), np.inf), ends)[::2]
        for i, rate in enumerate(rates):
            masked[i] += np.count_nonzero(deepest <= rate * plan.count[row])
    return masked


def uniform_probability(lengths: np.ndarray, counts: np.ndarray, rate: float) -> float:
    """The mean probability that ``k`` given tokens of ``n`` are all selected, where ``rate * n`` are selected uniformly
    (the whole numbers next to it with probabilities that make it the mean, as ``--masker uniform`` does).

    Args:
        lengths: ``k`` of each phrase, ``[P]``.
        counts: ``n``, the number of maskable tokens of its row, ``[P]``, at least ``k``.
        rate: in (0, 1].
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
    """What was measured of a masker: ``masked[i]`` of ``trials`` phrases were masked whole at ``rates[i]``."""

    masker: str
    rates: Sequence[float]
    masked: np.ndarray
    trials: int

    def probability(self, i: int) -> float:
        return self.masked[i] / self.trials if self.trials else float("nan")
