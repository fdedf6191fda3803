"""The trace of the gradient's covariance, split by the law of total variance (torch, no fairseq).

With ``g(x, m)`` the gradient on row ``x`` with mask ``m``: ``tr Cov(g) = tr Cov_x(E_m g) + E_x tr Cov_m(g | x)``, the data
term and the mask term (source: the decomposition theorem of MAP-Net, arXiv 2008.05333). Nested sampling estimates both
without bias: rows drawn independently, ``R`` independent masks of each. Rows are taken in groups, each group gives an
estimate of its own, and their mean and spread give the result and its interval. In memory are five vectors of the
gradient's length, however many rows and masks there are.
"""

import math
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

TERMS = ("data", "mask", "total", "loss")

# two-sided 95% quantiles of Student's t for 1 to 30 degrees of freedom
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


class Estimate(NamedTuple):
    """A mean over groups, and half the width of its 95% interval."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.4g} ± {self.error:.2g}"


class RunningVariance:
    """Running mean of vectors, and the sum of their squared distances from it.

    By Welford's recurrence: the difference of two large sums would drown a small spread in their rounding. Vectors that
    are all equal have a spread of exactly 0.
    """

    def __init__(self) -> None:
        self.count, self.squares = 0, 0.0
        self.mean: Optional[torch.Tensor] = None

    def add(self, vector: torch.Tensor) -> None:
        """*Shape:* ``[P]``."""
        self.count += 1
        if self.mean is None:
            self.mean = vector.clone()
            return
        step = vector - self.mean
        self.squares += _square(step) * (self.count - 1) / self.count
        self.mean.add_(step, alpha=1 / self.count)

    def variance(self) -> float:
        """Unbiased, summed over the entries; of at least two vectors."""
        return self.squares / (self.count - 1)


class Group:
    """Running moments of one group of rows.

    Args:
        masks: ``R``, at least 2.
    """

    def __init__(self, masks: int):
        self.masks, self.rows, self.first = (
            masks,
            RunningVariance(),
            RunningVariance(),
        )  # of mean gradients per row, of first masks
        self.within = self.loss = 0.0

    def add_row(self, gradients: Callable[[int], Tuple[torch.Tensor, float]]) -> None:
        """Add a row: ``gradients(r)`` gives the gradient ``[P]`` and the loss with mask ``r``."""
        row = RunningVariance()
        for r in range(self.masks):
            gradient, loss = gradients(r)
            self.loss += loss / self.masks
            row.add(gradient)
            if r == 0:
                self.first.add(gradient)
        self.within += row.variance()
        self.rows.add(row.mean)

    def result(self) -> Dict[str, float]:
        """Unbiased estimates: ``data``, ``mask``, ``total`` (directly, from the first mask of each row alone) and
        ``loss``."""
        count = self.rows.count
        mask = self.within / count
        # the rows' means still hold 1/R of the mask term
        data = self.rows.variance() - mask / self.masks
        return {"data": data, "mask": mask, "total": self.first.variance(), "loss": self.loss / count}


def _square(vector: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(vector, dtype=torch.float64)) ** 2


def decompose(
    gradient: Callable[[int, int], Tuple[torch.Tensor, float]],
    rows: Sequence[int],
    masks: int,
    groups: int,
    tick: Callable[[], None] = lambda: None,
) -> Dict[str, Estimate]:
    """Estimate ``data``, ``mask``, ``total`` and ``loss``.

    Args:
        gradient: ``gradient(row, r)`` gives a float vector ``[P]`` and the loss of a sequence with its mask number ``r``.
        rows: an independent sample of sequences, at least ``2 * groups``.
        masks: ``R``, masks of each sequence, at least 2. More of them sharpen the mask term, more sequences all terms.
        groups: at least 2; more give a better interval, and slightly wider estimates.
        tick: called after each sequence.
    """
    size = len(rows) // groups
    if masks < 2 or groups < 2 or size < 2:
        raise ValueError(f"it takes 2 masks, 2 groups and 2 rows a group, got {masks}, {groups} and {size}")
    found: List[Dict[str, float]] = []
    for number in range(groups):
        group = Group(masks)
        for row in rows[number * size : (number + 1) * size]:
            group.add_row(lambda r, row=row: gradient(row, r))
            tick()
        found.append(group.result())
    return {term: summarise([result[term] for result in found]) for term in TERMS}


def summarise(values: Sequence[float]) -> Estimate:
    """Mean of independent estimates and half the width of its 95% interval."""
    count = len(values)
    mean = math.fsum(values) / count
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (count - 1))
    return Estimate(mean, t_quantile(count - 1) * spread / math.sqrt(count))


def t_quantile(freedom: int) -> float:
    """Two-sided 95% quantile of Student's t, to three digits."""
    if freedom <= len(_T95):
        return _T95[freedom - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
