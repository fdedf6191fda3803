"""Corruption and prediction rates, and their schedules (no fairseq).

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


@dataclass(frozen=True)
class RateSchedule:
    """Rates as a function of the number of updates.

    Attributes:
        start: rates at update 0 and in validation, so that validation losses compare over a whole run.
        final: rates from ``max_update`` on.
        max_update: length of the linear path; unused (0) if ``start == final``.
    """

    start: Rates
    final: Rates
    max_update: int = 0

    def at(self, update: int) -> Rates:
        """Return the rates at an update number, 0 or more."""
        if self.start == self.final:
            return self.start
        if update >= self.max_update:
            return self.final
        fraction = max(update, 0) / self.max_update
        return Rates(
            self.start.corruption + (self.final.corruption - self.start.corruption) * fraction,
            self.start.prediction + (self.final.prediction - self.start.prediction) * fraction,
        )

    @property
    def max_copies(self) -> int:
        """The maximal copies at any update, reached at an end: the quotient of two linear functions is monotone."""
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
    for option, value in (
        ("--mask-prob", mask_prob),
        ("--corruption-rate", corruption_rate),
        ("--prediction-rate", prediction_rate),
        ("--mask-prob-final", mask_prob_final),
        ("--corruption-rate-final", corruption_rate_final),
        ("--prediction-rate-final", prediction_rate_final),
    ):
        if value is not None and not 0.0 < value <= 1.0:  # also refuses NaN
            raise UsageError(f"{option} must lie in (0, 1], got {value:g}")
    start = Rates(corruption_rate or mask_prob, prediction_rate or mask_prob)
    final = Rates(
        corruption_rate_final or mask_prob_final or start.corruption, prediction_rate_final or mask_prob_final or start.prediction
    )
    if final != start and max_update <= 0:
        raise UsageError(
            "a rate schedule (--mask-prob-final, --corruption-rate-final, --prediction-rate-final) runs over "
            f"--max-update, which must be above 0, got {max_update}"
        )
    return RateSchedule(start, final, max_update)
