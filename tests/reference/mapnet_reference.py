"""MAP-Net's sampling, weights and preference loss in plain loops, and expectations by enumeration."""

import itertools
import math

import numpy as np


def propose(scores, maskable, temperature, uniform_mix):
    """q of one row, a list; 0 where a token is not maskable."""
    n = sum(maskable)
    powers = [math.exp(s / temperature) if m else 0.0 for s, m in zip(scores, maskable)]
    total = sum(powers)
    return [(1 - uniform_mix) * p / total + uniform_mix / n if m else 0.0 for p, m in zip(powers, maskable)]


def outcomes(q, k, steps=400):
    """Everything that Gumbel-top-k can give: ``(probability, taken, threshold)`` with the threshold on a grid.

    With ``y = exp(-threshold)``: position j is the threshold with density ``q_j exp(-q_j y)``, those taken lie above it,
    each with probability ``1 - exp(-q_i y)``, the others below, each with ``exp(-q_l y)``. The grid is that of
    ``u = exp(-c y)``, ``c`` the sum of ``q`` over what was not taken, on which the density is flat.
    """
    grid = (np.arange(steps) + 0.5) / steps
    for taken in itertools.combinations(range(len(q)), k):
        rest = [i for i in range(len(q)) if i not in taken]
        c = sum(q[i] for i in rest)
        for u in grid:
            y = -math.log(u) / c
            inside = math.prod(1 - math.exp(-q[i] * y) for i in taken)
            # whichever of the rest is the threshold: their densities q_j / c add up to 1
            yield inside / steps, taken, -math.log(y)


def inclusion_by_order(q, k):
    """Probability that each position is among the first k of successive draws without replacement."""
    found = [0.0] * len(q)
    for order in itertools.permutations(range(len(q)), k):
        p, left = 1.0, 1.0
        for i in order:
            p, left = p * q[i] / left, left - q[i]
        for i in order:
            found[i] += p
    return found


def weights(q, taken, threshold, limit=math.inf, normalise=True):
    """Weights of one mask, by position taken."""
    k, n = len(taken), len(q)
    pi = [1 - math.exp(-q_i * math.exp(-threshold)) for q_i in q]
    size = sum(pi) if normalise else k
    raw = {i: size / (n * pi[i]) for i in taken}
    return {i: min(w, limit) for i, w in raw.items()}


def preference(q, masks, losses, beta, margin):
    """Loss of one pair, and whether it counts: ``masks`` are two lists of positions, ``losses`` their mean losses."""
    if abs(losses[0] - losses[1]) <= margin or set(masks[0]) == set(masks[1]):
        return 0.0, False
    hard, easy = (masks[0], masks[1]) if losses[0] > losses[1] else (masks[1], masks[0])
    log_hard = sum(math.log(q[i]) for i in hard) / math.sqrt(len(hard))
    log_easy = sum(math.log(q[i]) for i in easy) / math.sqrt(len(easy))
    return -math.log(1 / (1 + math.exp(-beta * (log_hard - log_easy)))), True
