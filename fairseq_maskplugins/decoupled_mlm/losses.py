"""Sums of the loss by what happened to a predicted token (torch, no fairseq)."""

from typing import Dict

import torch

KINDS = ("masked", "random", "same")


def sum_by_kind(loss: torch.Tensor, source: torch.Tensor, target: torch.Tensor, mask: int) -> Dict[str, torch.Tensor]:
    """Sums and counts over predicted tokens, by kind: ``masked`` (the input is ``<mask>``), ``same`` (the input is the
    token itself, also where a random replacement happened to draw it) and ``random`` (any other input).

    Args:
        loss, source, target: of the predicted tokens. *Shape:* ``[N]`` each.
        mask: id of ``<mask>``.

    Returns:
        ``loss_KIND`` and ``n_KIND``, tensors of no dimension.
    """
    masked, same = source == mask, source == target
    found = {"masked": masked, "random": ~masked & ~same, "same": same}
    # not a product: an infinite loss of one kind would be NaN in the others
    sums = {f"loss_{kind}": torch.where(found[kind], loss, torch.zeros_like(loss)).sum() for kind in KINDS}
    sums.update({f"n_{kind}": found[kind].sum() for kind in KINDS})
    return sums
