"""What the proposer learns from: which of two masks was harder (torch, no fairseq)."""

from typing import NamedTuple

import torch
import torch.nn.functional as F


class Preference(NamedTuple):
    """Of each of ``B`` pairs.

    Attributes:
        loss: float32 ``[B]``, 0 for pairs that do not count.
        counts: bool ``[B]``; False for pairs without tokens, of equal masks, or with losses within the margin.
        correct: bool ``[B]``, whether the harder mask is the likelier one; False for pairs that do not count.
    """

    loss: torch.Tensor
    counts: torch.Tensor
    correct: torch.Tensor


def compare_masks(log_q: torch.Tensor, taken: torch.Tensor, mean_loss: torch.Tensor, beta: float, margin: float) -> Preference:
    """Bradley-Terry loss ``-log sigmoid(beta (log q(hard) - log q(easy)))`` of the pairs.

    ``log q(mask)`` is the sum of ``log q_i`` over the ``k`` tokens of the mask, divided by ``sqrt(k)``: the difference between
    two random masks grows with ``sqrt(k)``, and one ``beta`` should fit short and long sequences.

    Args:
        log_q: ``[B, T]``; the gradient goes here.
        taken: bool ``[B, 2, T]``, the tokens that the losses are means of.
        mean_loss: unweighted mean loss of each mask ``[B, 2]``, detached.
        beta: above 0; the larger, the flatter the proposal.
        margin: 0 or more, in nats: pairs this close teach nothing.
    """
    size = taken.sum(-1)
    inside = log_q.masked_fill(~taken.any(1), 0.0)  # minus infinity would make a gradient of NaN out of 0
    log_mask = (inside[:, None] * taken).sum(-1) / size.clamp(min=1).float().sqrt()
    gap = (mean_loss[:, 0] - mean_loss[:, 1]).detach().float()
    counts = (gap.abs() > margin) & (size.amin(-1) > 0) & (taken[:, 0] != taken[:, 1]).any(-1)
    advantage = (log_mask[:, 0] - log_mask[:, 1]) * torch.sign(gap)
    loss = F.softplus(-beta * torch.where(counts, advantage, 0.0 * advantage))
    return Preference(loss * counts, counts, counts & (advantage.detach() > 0))
