"""Turning an unmasked sample and its plan into what a masked-LM criterion takes (torch, no fairseq)."""

from typing import Any, Dict

import torch

from .plan import select
from .rates import Rates

PLAN_KEY = "mask_plan"


def mask_sample(sample: Dict[str, Any], rates: Rates, pad: int, mask: int, include_targets: bool = False) -> Dict[str, Any]:
    """Mask a collated batch at a pair of rates.

    Args:
        sample: as our dataset collates it: ``net_input.src_tokens`` uncorrupted ``[B, T]``, and ``mask_plan`` with
            ``depth`` ``[B, T]``, ``count`` ``[B]`` and maybe ``replacement`` ``[B, T]``. It is not changed.
        rates: corruption and prediction rate; ``K = rates.copies`` copies of every row stand next to each other.
        pad, mask: ids.
        include_targets: also give ``net_input.target_tokens`` (``--include-target-tokens``).

    Returns:
        a sample in the format of fairseq's ``masked_lm``, of ``K B`` rows: ``id``, ``net_input`` (``src_tokens``,
        ``src_lengths``), ``target`` (``pad`` where nothing is predicted), ``nsentences``, ``ntokens``; and besides
        ``tokens`` (the uncorrupted rows ``[K B, T]``), ``copies`` (``K``), ``maskable`` (bool ``[K B, T]``) and
        ``corruption_rate``, ``prediction_rate`` (what was asked for).
    """
    plan, net_input = sample[PLAN_KEY], sample["net_input"]
    rows, copies = net_input["src_tokens"], rates.copies
    corrupted, predicted = select(plan["depth"], plan["count"], rates)
    corrupted, predicted = corrupted.flatten(0, 1), predicted.flatten(0, 1)

    def repeat(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.repeat_interleave(copies, dim=0) if copies > 1 else tensor

    tokens = repeat(rows)
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
