"""The formula, and the rates that go into it (torch, no fairseq).

Source: "MLM and MAE Through the Lens of Dropout" (Su Jianlin, 2021), section "Correcting the Embeddings".
"""

from typing import Any, Callable, NamedTuple, Optional

import torch

from ..decoupled_mlm.rates import build_schedule
from ..errors import UsageError


class ReplacementRates(NamedTuple):
    """How pretraining replaced tokens.

    Attributes:
        selected: share of the tokens that was selected, in [0, 1]; 0 corrects nothing.
        random: share of the selected tokens that became random tokens, in [0, 1].
        same: share of the selected tokens that stayed, in [0, 1]; ``random + same <= 1``, the rest became ``<mask>``.
    """

    selected: float
    random: float = 0.0
    same: float = 0.0

    @property
    def mask(self) -> float:
        """Share of the selected tokens that became ``<mask>``."""
        return 1.0 - self.random - self.same

    def check(self) -> "ReplacementRates":
        """Return itself, or raise :class:`~fairseq_maskplugins.errors.UsageError` for a share outside its interval."""
        names = ("--mask-prob", "--random-token-prob", "--leave-unmasked-prob")
        for name, value in zip(names, self):
            if not 0.0 <= value <= 1.0:
                raise UsageError(f"{name} must lie in [0, 1], got {value:g}")
        if self.random + self.same > 1.0 + 1e-9:
            raise UsageError(
                f"--random-token-prob and --leave-unmasked-prob must add up to at most 1, got {self.random:g} + {self.same:g}"
            )
        return self


def correct(weight: torch.Tensor, mask: int, shares: ReplacementRates, rows: torch.Tensor) -> torch.Tensor:
    """``E[i] <- (1 - m) E[i] + m (p_mask E[mask] + p_same E[i] + p_random mean(E))`` for the chosen rows, as a new tensor.

    Args:
        weight: embeddings ``[V, C]`` of any float type; computed in float32 at least. ``mean(E)`` is over all rows.
        mask: row of ``<mask>``.
        shares: ``m`` is ``shares.selected``.
        rows: bool ``[V]``; the other rows stay as they are.
    """
    wide = weight.to(torch.promote_types(weight.dtype, torch.float32))
    mean = wide.mean(0, dtype=torch.float64).to(wide.dtype)
    m = shares.selected
    constant = m * (shares.mask * wide[mask] + shares.random * mean)
    corrected = (1.0 - m + m * shares.same) * wide + constant
    return torch.where(rows.unsqueeze(1), corrected.to(weight.dtype), weight)


def read_shares(option: Callable[[str], Any], update: int, max_update: Optional[float] = None) -> Optional[ReplacementRates]:
    """Read the rates from a checkpoint's options (``option(name)``) at an update; None if there are none. ``decoupled_mlm`` and
    fairseq's ``masked_lm`` are understood. ``max_update`` is the schedule's end, unless the task has its own."""
    if option("mask_prob") is None:
        return None
    names = ("mask_prob", "corruption_rate", "prediction_rate")
    rates = [option(name) for name in names] + [option(f"{name}_final") for name in names]
    schedule = build_schedule(*rates, max_update=int(option("max_update") or max_update or 0))
    return ReplacementRates(
        schedule.at(update).corruption, float(option("random_token_prob") or 0.0), float(option("leave_unmasked_prob") or 0.0)
    )
