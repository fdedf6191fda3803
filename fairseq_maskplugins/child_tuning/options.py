"""The options, checked. Pure: plain values in, one line of :class:`UsageError` where one of them is wrong."""

from typing import Any, Optional, Tuple

from ..errors import UsageError
from .masks import grid_share
from .step import SMALLEST, Masking

MODES = ("F", "D")
TARGETS = ("gradient", "update")
DECAYS = ("all", "child")


def check_choice(option: str, value: Any, choices: Tuple[str, ...]) -> str:
    if value not in choices:
        raise UsageError(f"{option} must be one of {', '.join(choices)}, got {value!r}")
    return value


def check_share(option: str, value: Any) -> float:
    """A share in (0, 1]."""
    if not isinstance(value, (int, float)) or not 0.0 < value <= 1.0:
        raise UsageError(f"{option} must lie in (0, 1], got {value}")
    return float(value)


def build_masking(mode: str, reserve_p: float, target: str, no_rescale: bool, decay: Optional[str], eps: float = 1.0) -> Masking:
    """Check the options and describe what a mask does.

    Args:
        mode: "F" (a fresh mask at each update) or "D" (a fixed one).
        reserve_p: fraction kept, in (0, 1]; F rescales by the fraction that its masks really keep (:func:`~.masks.grid_share`).
        target: "gradient" or "update".
        decay: "all" or "child"; None is "all" for F and "child" for D.
        eps: Adam's; without it, an entry that never had a gradient is 0 / 0.
    """
    check_choice("--child-tuning-mode", mode, MODES)
    check_share("--reserve-p", reserve_p)
    check_choice("--child-tuning-target", target, TARGETS)
    decay = ("all" if mode == "F" else "child") if decay is None else decay
    check_choice("--child-tuning-decay", decay, DECAYS)
    if not eps >= SMALLEST:
        raise UsageError(f"--adam-eps must be above 0 with ChildTuning, in float32 too ({SMALLEST:.2g} or more), got {eps:g}")
    share = grid_share(reserve_p) if mode == "F" else reserve_p
    return Masking(target, 1.0 if no_rescale else 1.0 / share, decay == "all", mode == "D")
