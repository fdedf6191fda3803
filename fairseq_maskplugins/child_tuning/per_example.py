"""Squared gradients of single examples from one backward pass over a batch, layer by layer.

For a layer with inputs ``a`` and output gradients ``g``, example ``b`` has the weight gradient
``G_b = sum_t g_bt a_bt^T``. Each function takes both as ``[B, T, .]`` in float32 (positions of an example that do not
exist have ``g = 0``) and gives, for each parameter of the layer, ``sum_b G_b^2``.
"""

from typing import Dict, Optional

import torch

AT_ONCE = 1 << 22  # entries of all examples' gradients that are held at once


def linear(weight: torch.Tensor, a: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """*Shape:* ``weight [O, I]``, ``a [B, T, I]``, ``g [B, T, O]``; returns ``[O, I]``."""
    if a.size(1) == 1:  # the square of an outer product is an outer product of squares
        return (g[:, 0] ** 2).t() @ (a[:, 0] ** 2)
    if weight.numel() * a.size(0) <= AT_ONCE:
        return torch.bmm(g.transpose(1, 2), a).pow_(2).sum(0)
    total, one = torch.zeros(weight.shape, device=a.device), torch.empty(weight.shape, device=a.device)
    for a_b, g_b in zip(a, g):
        torch.mm(g_b.t(), a_b, out=one)
        total.addcmul_(one, one)
    return total


def embedding(weight: torch.Tensor, ids: torch.Tensor, g: torch.Tensor, padding_idx: Optional[int]) -> torch.Tensor:
    """*Shape:* ``weight [V, C]``, ``ids [B, T]``, ``g [B, T, C]``; returns ``[V, C]``, the padding row 0."""
    batch = torch.arange(len(ids), device=ids.device)[:, None].expand_as(ids)
    keys, inverse = torch.unique(batch * len(weight) + ids, return_inverse=True)
    sums = torch.zeros(len(keys), g.size(-1), device=g.device)
    sums.index_add_(0, inverse.reshape(-1), g.reshape(-1, g.size(-1)))
    total = torch.zeros(weight.shape, device=g.device)
    total.index_add_(0, keys % len(weight), sums.pow_(2))
    if padding_idx is not None:
        total[padding_idx] = 0
    return total


def sums_of_squares(
    module: torch.nn.Module, a: torch.Tensor, g: torch.Tensor, wanted: Dict[str, torch.Tensor]
) -> Dict[str, torch.Tensor]:
    """``sum_b G_b^2`` for the parameters ``wanted`` (by their names in the module) of a supported module."""
    found = {}
    if isinstance(module, torch.nn.Embedding):
        found["weight"] = embedding(module.weight, a, g, module.padding_idx)
    elif isinstance(module, torch.nn.LayerNorm):
        if "weight" in wanted:
            normalised = torch.nn.functional.layer_norm(a, module.normalized_shape, eps=module.eps)
            found["weight"] = (normalised * g).sum(1).pow_(2).sum(0)
    elif "weight" in wanted:
        found["weight"] = linear(module.weight, a, g)
    if "bias" in wanted:
        found["bias"] = g.sum(1).pow_(2).sum(0)
    return found


def supported(module: torch.nn.Module) -> bool:
    """Whether this file knows the module, by its type; :class:`~.fisher.Fisher` checks it on single examples."""
    if isinstance(module, torch.nn.LayerNorm):
        return len(module.normalized_shape) == 1
    return isinstance(module, (torch.nn.Linear, torch.nn.Embedding))
