"""The proposal, sampling from it without replacement, and importance weights (torch, no fairseq).

Sources: MAP-Net (arXiv 2008.05333) for masks from a learned proposal with importance weights; "Stochastic Beams and Where
to Find Them" (Kool et al., arXiv 1903.06059) for Gumbel-top-k and for inclusion probabilities given the threshold.
"""

import math
from typing import NamedTuple, Tuple

import torch

from ..rng_device import row_uniform

PAIR = 2  # masks of a row


def propose(scores: torch.Tensor, maskable: torch.Tensor, temperature: float, uniform_mix: float) -> torch.Tensor:
    """``log q`` with ``q = (1 - eps) softmax(score / tau) + eps / n`` over the ``n`` maskable tokens of a sequence.

    Args:
        scores, maskable: float and bool ``[B, T]``.
        temperature: ``tau`` above 0; near 0: one token has it all, large: uniform.
        uniform_mix: ``eps`` in [0, 1]; 0: the scores only, 1: exactly uniform, and scores get gradients of 0.

    Returns:
        float32 ``[B, T]``; minus infinity where a token is not maskable.
    """
    count = maskable.sum(1, keepdim=True)
    scores = scores.float() / temperature
    # a row without maskable tokens keeps finite scores: a softmax over nothing is NaN, also in its gradient
    scores = scores.masked_fill(~maskable & (count > 0), -math.inf)
    log_uniform = -torch.log(count.clamp(min=1).float()).expand_as(scores)
    if uniform_mix >= 1.0:
        log_q = log_uniform + 0.0 * scores.masked_fill(~maskable, 0.0)
    else:
        log_q = torch.log_softmax(scores, dim=1).masked_fill(~maskable, -1e30)
        if uniform_mix > 0.0:
            log_q = torch.logaddexp(log_q + math.log1p(-uniform_mix), log_uniform + math.log(uniform_mix))
    return log_q.masked_fill(~maskable, -math.inf)


class Pair(NamedTuple):
    """Two rankings of each row's tokens.

    Attributes:
        perturbed: float64 ``[B, 2, T]``, ``log q`` plus Gumbel noise; minus infinity at tokens that are not maskable.
        depth: float64 ``[B, 2, T]``, what ``decoupled_mlm/plan.py`` calls depth: rank plus ``v`` in (0, 1), the same ``v``
            for both, so that the two masks have equally many tokens; infinite at tokens that are not maskable.
    """

    perturbed: torch.Tensor
    depth: torch.Tensor


def draw_pair(log_q: torch.Tensor, key: Tuple[int, ...], ids: torch.Tensor) -> Pair:
    """Rank each row's tokens twice by Gumbel noise on ``log q``: the first ``k`` of a ranking are a sample of size ``k``
    without replacement.

    Args:
        log_q: of :func:`propose`, or of another proposal. *Shape:* ``[B, T]``.
        key: words that key the draws: seed and update number.
        ids: sample ids, int64 ``[B]``. Equal keys and ids give equal noise.
    """
    length = log_q.size(1)
    u = torch.stack([row_uniform(key, ids, f"mapnet-{i}", length) for i in range(PAIR)], dim=1)
    perturbed = log_q.double()[:, None] - torch.log(-torch.log(u))
    order = perturbed.argsort(dim=-1, descending=True)
    rank = torch.arange(length, device=ids.device).expand_as(order)
    depth = torch.empty_like(perturbed).scatter_(-1, order, rank.double())
    depth += row_uniform(key, ids, "mapnet-cut", 1)[:, None]
    return Pair(perturbed, depth.masked_fill(torch.isinf(log_q)[:, None], math.inf))


def log_inclusion(log_q: torch.Tensor, perturbed: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
    """Log of the probability that a position is in the sample, given the threshold: float64 ``[B, 2, T]``, at most 0.

    ``pi_i = 1 - exp(-q_i exp(-threshold))``, where the threshold is the largest perturbed log-probability outside the sample;
    ``pi_i = 1`` if all tokens are in it. Minus infinity where a token is not maskable.

    Args:
        log_q: ``[B, T]``.
        perturbed: ``[B, 2, T]``.
        taken: bool ``[B, 2, T]``, the largest ``k`` of a sequence.
    """
    threshold = perturbed.masked_fill(taken, -math.inf).amax(-1, keepdim=True)
    x = log_q.double()[:, None] - threshold  # infinite where all were taken
    # log(1 - exp(-exp(x))): x itself where exp(x) is tiny, and nothing to subtract where it is large
    log_pi = torch.where(x < -20, x, torch.log(-torch.expm1(-torch.exp(x.clamp(-20, 700)))))
    return log_pi.masked_fill(torch.isinf(log_q)[:, None], -math.inf)


class Weights(NamedTuple):
    """Importance weights of the positions taken.

    Attributes:
        weight: float64 ``[B, 2, T]``, 0 at positions that were not taken.
        effective: float64 ``[B, 2]``, effective sample size of each mask's weights before clipping, as a share of ``k``, in
            (0, 1]; 0 where nothing was taken.
        clipped: bool ``[B, 2, T]``.
    """

    weight: torch.Tensor
    effective: torch.Tensor
    clipped: torch.Tensor


def weigh(
    log_pi: torch.Tensor, taken: torch.Tensor, count: torch.Tensor, limit: float = math.inf, normalise: bool = True
) -> Weights:
    """Weights under which ``1/k sum w_i f_i`` over a mask estimates the mean of ``f`` over the ``n`` maskable tokens.

    Not normalised: ``w_i = k / (n pi_i)``, unbiased if ``f`` depends on the position only. But ``pi`` is given the threshold,
    which varies from draw to draw, and all weights of a mask vary with it, even those of uniform masks, which should be 1.
    Normalised: ``w_i = sum_j pi_j / (n pi_i)``, with the expected size given the threshold in place of ``k``. Then uniform masks
    weigh exactly 1; with ``q`` proportional to ``f`` and ``k`` much below ``n``, all ``w_i f_i`` are equal, which is the purpose
    of the method; a bias of the order of 1/k remains.

    Args:
        log_pi: of :func:`log_inclusion`, ``[B, 2, T]``.
        taken: bool ``[B, 2, T]``.
        count: ``n``, ``[B]``.
        limit: clip at this value, at least 1. 1: no position counts for more than it would unweighted; infinite: no clipping.
    """
    size = taken.sum(-1, keepdim=True).double()
    expected = log_pi.exp().sum(-1, keepdim=True) if normalise else size
    inverse = torch.exp(-log_pi.masked_fill(~taken, 0.0)) * taken
    weight = inverse * expected / count.clamp(min=1).double()[:, None, None]
    total, squares = weight.sum(-1, keepdim=True), (weight**2).sum(-1, keepdim=True)
    none = size == 0
    effective = torch.where(none, size, total**2 / squares.masked_fill(none, 1.0) / size.clamp(min=1.0))
    clipped = weight > limit * (1 + 1e-9)
    return Weights(weight.clamp(max=limit), effective.squeeze(-1), clipped)


def entropy_share(log_q: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Entropy of each row's proposal relative to the uniform one's: 1 is uniform, 0 is one token always; 1 for rows of
    less than 2 maskable tokens. *Shape:* ``[B, T]`` and ``[B]`` to ``[B]``."""
    log_q = log_q.double()
    entropy = -torch.where(torch.isinf(log_q), torch.zeros_like(log_q), log_q.exp() * log_q).sum(1)
    several = count > 1
    return torch.where(several, entropy / torch.log(count.double().clamp(min=2.0)), torch.ones_like(entropy))
