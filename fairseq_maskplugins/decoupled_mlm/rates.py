"""Corruption rate and prediction rate, and how they move over training (no fairseq here).

Sources: "Should You Mask 15% in Masked Language Modeling?" (arXiv 2202.08005, section 4) for two rates instead of one;
"Dynamic Masking Rate Schedules for MLM Pretraining" (arXiv 2305.15096) for the linear schedule.
"""

import math
from dataclasses import dataclass
from typing import Optional

from ..errors import UsageError

# 0.6 / 0.2 is 2.9999999999999996 in floating point: a quotient this close to a whole number is that number
_ROUNDING = 1e-9
_MOST_COPIES = 1e15  # of the smallest rates that a float can hold the quotient is infinite


@dataclass(frozen=True)
class Rates:
    """A pair of rates in (0, 1].

    Attributes:
        corruption: share of the maskable tokens that each copy of a row has corrupted; 1 leaves no context.
        prediction: share of a row's maskable tokens that are predicted, over all its copies; 1 predicts each once.
    """

    corruption: float
    prediction: float

    @property
    def copies(self) -> int:
        """How many copies of a row it takes: ``ceil(prediction / corruption)``, at least 1."""
        return max(1, math.ceil(min(self.prediction / self.corruption, _MOST_COPIES) - _ROUNDING))


def check_rate(option: str, value: float) -> float:
    """Return the value as a float, or raise :class:`UsageError` unless 0 < value <= 1."""
    value = float(value)
    if not 0.0 < value <= 1.0:  # also refuses NaN
        raise UsageError(f"{option} must lie in (0, 1], got {value:g}")
    return value


@dataclass(frozen=True)
class RateSchedule:
    """Rates as an exact function of the number of updates done so far.

    Attributes:
        start: rates at update 0, also used for validation, so that validation losses compare over a whole run.
        final: rates that are reached at ``max_update``.
        max_update: length of the linear path; unused (0) where ``start == final``.
    """

    start: Rates
    final: Rates
    max_update: int = 0

    def at(self, update: int) -> Rates:
        """Rates at an update number (0 for the first update; past ``max_update`` the final ones)."""
        if self.start == self.final:
            return self.start
        if update >= self.max_update:
            return self.final
        share = max(update, 0) / self.max_update

        def move(a: float, b: float) -> float:
            return a + (b - a) * share

        return Rates(move(self.start.corruption, self.final.corruption), move(self.start.prediction, self.final.prediction))

    @property
    def max_copies(self) -> int:
        """The most copies at any update. The quotient of two linear functions is monotone: an end has the most."""
        return max(self.start.copies, self.final.copies)


def build_schedule(
    mask_prob: float,
    corruption_rate: Optional[float] = None,
    prediction_rate: Optional[float] = None,
    mask_prob_final: Optional[float] = None,
    corruption_rate_final: Optional[float] = None,
    prediction_rate_final: Optional[float] = None,
    max_update: int = 0,
) -> RateSchedule:
    """Read the options: a rate that is not given falls back to ``mask_prob``, a final one to ``mask_prob_final``, then
    to where it starts.

    Raises:
        UsageError: a rate outside (0, 1], or a schedule without ``--max-update``.
    """
    options = {
        "--mask-prob": mask_prob,
        "--corruption-rate": corruption_rate,
        "--prediction-rate": prediction_rate,
        "--mask-prob-final": mask_prob_final,
        "--corruption-rate-final": corruption_rate_final,
        "--prediction-rate-final": prediction_rate_final,
    }
    given = {name: check_rate(name, value) for name, value in options.items() if value is not None}

    def first(*names: str) -> Optional[float]:
        return next((given[name] for name in names if name in given), None)

    start = Rates(first("--corruption-rate", "--mask-prob"), first("--prediction-rate", "--mask-prob"))
    final = Rates(
        first("--corruption-rate-final", "--mask-prob-final") or start.corruption,
        first("--prediction-rate-final", "--mask-prob-final") or start.prediction,
    )
    if final != start and max_update <= 0:
        raise UsageError(
            "a rate schedule (--mask-prob-final, --corruption-rate-final, --prediction-rate-final) runs over "
            f"--max-update, which must be above 0, got {max_update}"
        )
    return RateSchedule(start, final, max_update)
