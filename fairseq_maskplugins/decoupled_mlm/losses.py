"""Sums of the loss by the kind of input at predicted tokens (torch, no fairseq)."""

from typing import Dict

import torch

KINDS = ("masked", "random", "same")


def sum_by_kind(loss: torch.Tensor, source: torch.Tensor, target: torch.Tensor, mask: int) -> Dict[str, torch.Tensor]:
    """Sum losses and counts of predicted tokens by kind of input, as ``loss_KIND`` and ``n_KIND``. *Shape:* ``[N]`` each.

    Kinds: ``masked`` (``<mask>``), ``same`` (the token itself, also if a random replacement drew it), ``random`` (any other).
    """
    masked, same = source == mask, source == target
    kinds = {"masked": masked, "random": ~masked & ~same, "same": same}
    # not a product: an infinite loss of one kind would be NaN in the others
    sums = {f"loss_{kind}": torch.where(kinds[kind], loss, torch.zeros_like(loss)).sum() for kind in KINDS}
    sums.update({f"n_{kind}": kinds[kind].sum() for kind in KINDS})
    return sums
