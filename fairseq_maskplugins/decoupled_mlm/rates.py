"""Corruption and prediction rates, and their schedules (no fairseq here).

Sources: "Should You Mask 15% in Masked Language Modeling?" (arXiv 2202.08005, section 4) for two rates instead of one;
"Dynamic Masking Rate Schedules for MLM Pretraining" (arXiv 2305.15096) for the linear schedule.
"""

import math
from dataclasses import dataclass
from typing import Optional

from ..errors import UsageError

_ROUNDING = 1e-9  # 0.6 / 0.2 is 2.9999999999999996 in floating point
_MAX_COPIES = 1e15  # the quotient of tiny rates is infinite


@dataclass(frozen=True)
class Rates:
    """A pair of rates in (0, 1].

    Attributes:
        corruption: fraction of the maskable tokens corrupted in each copy of a sequence; 1 leaves no context.
        prediction: fraction of the maskable tokens predicted, over all copies of a sequence; 1 predicts each once.
    """

    corruption: float
    prediction: float

    @property
    def copies(self) -> int:
        """Number of copies of a sequence: ``ceil(prediction / corruption)``, at least 1."""
        return max(1, math.ceil(min(self.prediction / self.corruption, _MAX_COPIES) - _ROUNDING))


def check_rate(option: str, value: float) -> float:
    """Return the value as a float, or raise :class:`UsageError` unless 0 < value <= 1."""
    value = float(value)
    if not 0.0 < value <= 1.0:  # also refuses NaN
        raise UsageError(f"{option} must lie in (0, 1], got {value:g}")
    return value


@dataclass(frozen=True)
class RateSchedule:
    """Rates as a function of the number of updates.

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
        fraction = max(update, 0) / self.max_update

        def move(a: float, b: float) -> float:
            return a + (b - a) * fraction

        return Rates(move(self.start.corruption, self.final.corruption), move(self.start.prediction, self.final.prediction))

    @property
    def max_copies(self) -> int:
        """The most copies at any update: at an end, since the quotient of two linear functions is monotone."""
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
    """Read the options: a missing rate falls back to ``mask_prob``, a final one to ``mask_prob_final``, then to its start.

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
