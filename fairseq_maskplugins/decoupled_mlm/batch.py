"""Mask a batch of token ids in one call, for training loops of your own (numpy and torch, no fairseq)."""

from typing import NamedTuple, Optional, Sequence, Union

import numpy as np
import torch

from ..errors import UsageError
from ..maskers.base import Masker
from ..rng import SequenceDraws
from .plan import Planner
from .rates import Rates
from .sample import PLAN_KEY, mask_sample


class MaskedBatch(NamedTuple):
    """A masked batch of ``K B`` sequences; the ``K`` copies of a sequence stand next to each other.

    Attributes:
        source: int64 ``[K B, T]``, the corrupted token ids.
        target: int64 ``[K B, T]``, the original id where a token is predicted, else ``ignore_index``.
        sequence: int64 ``[K B]``, the row of ``tokens`` that each was made from.
    """

    source: torch.Tensor
    target: torch.Tensor
    sequence: torch.Tensor


def mask_batch(
    tokens: Union[np.ndarray, torch.Tensor],
    masker: Masker,
    rates: Rates,
    seed: int,
    epoch: int,
    ids: Sequence[int],
    *,
    random_token_prob: float = 0.0,
    leave_unmasked_prob: float = 0.0,
    budget: Optional[str] = None,
    ignore_index: int = -100,
) -> MaskedBatch:
    """Mask a padded batch as ``--task decoupled_mlm`` does; the masks are a function of ``(seed, epoch, id)``.

    Args:
        tokens: ids, padded on the right. *Shape:* ``[B, T]``.
        masker: from :func:`~fairseq_maskplugins.maskers.make_masker`.
        rates: corruption and prediction rate, each in (0, 1]; more prediction than corruption makes ``K`` copies.
        ids: the sequences' numbers in the data set. *Shape:* ``[B]``.
        random_token_prob, leave_unmasked_prob: fractions of the corrupted units that become random tokens or stay; sum at most 1.
        budget: ``"exact"`` or ``"whole"``; None for the masker's default.
        ignore_index: the target of tokens that are not predicted.

    Raises:
        UsageError: a fraction out of range, or a batch and ids of different lengths.
    """
    if min(random_token_prob, leave_unmasked_prob) < 0 or random_token_prob + leave_unmasked_prob > 1:
        raise UsageError(
            "random_token_prob and leave_unmasked_prob must be 0 or more and add up to at most 1, got "
            f"{random_token_prob:g} and {leave_unmasked_prob:g}"
        )
    tokens = torch.as_tensor(tokens).long()
    if tokens.dim() != 2 or len(ids) != len(tokens):
        raise UsageError(f"tokens must be [B, T] and ids [B], got {list(tokens.shape)} and {len(ids)} ids")
    planner = Planner(masker, budget, random_token_prob, leave_unmasked_prob)
    plan = planner.draw(tokens.cpu().numpy(), SequenceDraws(seed, epoch, np.asarray(ids, dtype=np.int64)))
    sample = {
        "id": torch.arange(len(tokens), device=tokens.device),
        "net_input": {"src_tokens": tokens},
        "nsentences": len(tokens),
        "ntokens": tokens.numel(),
        PLAN_KEY: {k: None if v is None else torch.from_numpy(v).to(tokens.device) for k, v in plan._asdict().items()},
    }
    masked = mask_sample(sample, rates, ignore_index, masker.vocabulary.mask)
    return MaskedBatch(masked["net_input"]["src_tokens"], masked["target"], masked["id"])
