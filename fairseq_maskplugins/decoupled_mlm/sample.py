"""Mask a collated sample at a pair of rates (torch, no fairseq)."""

from typing import Any, Dict

import torch

from .plan import select
from .rates import Rates

PLAN_KEY = "mask_plan"


def mask_sample(sample: Dict[str, Any], rates: Rates, pad: int, mask: int, include_targets: bool = False) -> Dict[str, Any]:
    """Mask a collated batch at a pair of rates; ``K = rates.copies`` copies of every sequence stand next to each other.

    Args:
        sample: of :class:`~fairseq_maskplugins.decoupled_mlm.dataset.MaskPlanDataset`; it is not changed.
        pad, mask: ids of the target of tokens that are not predicted, and of ``<mask>``.
        include_targets: also give ``net_input.target_tokens`` (``--include-target-tokens``).

    Returns:
        a sample of ``K B`` sequences in the format of fairseq's ``masked_lm``, and besides ``tokens`` (uncorrupted,
        ``[K B, T]``), ``copies`` (``K``), ``maskable`` (bool ``[K B, T]``), ``corruption_rate`` and ``prediction_rate``.
    """
    plan, net_input = sample[PLAN_KEY], sample["net_input"]
    copies = rates.copies
    corrupted, predicted = (part.flatten(0, 1) for part in select(plan["depth"], plan["count"], rates))

    def repeat(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.repeat_interleave(copies, dim=0) if copies > 1 else tensor

    tokens = repeat(net_input["src_tokens"])
    if plan.get("replacement") is None:
        source = tokens.masked_fill(corrupted, mask)
    else:
        source = torch.where(corrupted, repeat(plan["replacement"]), tokens)
    target = tokens.masked_fill(~predicted, pad)

    masked = {key: value for key, value in sample.items() if key != PLAN_KEY}
    masked["net_input"] = {
        key: source if key == "src_tokens" else repeat(value) if torch.is_tensor(value) else value
        for key, value in net_input.items()
    }
    if include_targets:
        masked["net_input"]["target_tokens"] = target
    masked.update(
        id=repeat(sample["id"]),
        target=target,
        nsentences=sample["nsentences"] * copies,
        ntokens=sample["ntokens"] * copies,
        tokens=tokens,
        copies=copies,
        maskable=repeat(plan["depth"] <= plan["count"][:, None]),
        corruption_rate=rates.corruption,
        prediction_rate=rates.prediction,
    )
    return masked
