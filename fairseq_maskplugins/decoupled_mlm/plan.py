"""The mask plan: every token of a batch gets a depth, and a rate is a threshold on it (numpy and torch, no fairseq).

A masker cuts a sequence into units. Sorting the units by random keys ranks the ``n`` maskable tokens 0 to n-1; tokens of one
unit are neighbours. With ``[s, e)`` the ranks of a token's unit, ``r`` its own rank, ``v`` uniform in (0, 1], its **depth** is

- budget ``exact``: ``r + v``, one ``v`` per sequence: a rate ``x`` selects exactly ``floor(x n + 1 - v)`` tokens, and the unit
  at the cut is truncated, at its end or at its beginning;
- budget ``whole``: ``s + v (e - s)``, one ``v`` per unit: units are never truncated.

A rate ``x`` selects the tokens of depth at most ``x n``: ``x n`` tokens in expectation, and a higher rate selects a superset.
Data workers draw depths without knowing the update number; the training step compares them with its rates.
"""

from typing import NamedTuple, Optional, Tuple

import numpy as np
import torch

from ..maskers.base import Masker
from ..maskers.runs import merge_units, starts_after_gap
from ..rng import SequenceDraws, to_uniform
from .ranking import KIND_BITS, Ranked, rank_tokens, rank_units
from .rates import Rates

BUDGETS = ("exact", "whole")


class Plan(NamedTuple):
    """The mask plan of a batch.

    Attributes:
        depth: float64 ``[B, T]``; in (0, n] at maskable tokens, infinite elsewhere.
        count: float64 ``[B]``; ``n``, the number of maskable tokens.
        replacement: int64 ``[B, T]``, what a corrupted token becomes; None if that is always ``<mask>``.
    """

    depth: np.ndarray
    count: np.ndarray
    replacement: Optional[np.ndarray]


class Planner:
    """Draw the plans of padded batches.

    Args:
        masker: cuts sequences into units.
        budget: ``"exact"``, ``"whole"``, or None for the masker's own default.
        random_token_prob, leave_unmasked_prob: fractions in [0, 1] of the selected units that become random tokens (one draw
            per token) or stay as they are; their sum is at most 1, the rest becomes ``<mask>``.
        run_length, run_stdev: ``--mask-multiple-length`` and ``--mask-stdev``.
    """

    def __init__(
        self,
        masker: Masker,
        budget: Optional[str] = None,
        random_token_prob: float = 0.0,
        leave_unmasked_prob: float = 0.0,
        run_length: int = 1,
        run_stdev: float = 0.0,
    ):
        self.masker, self.vocabulary = masker, masker.vocabulary
        self.budget = budget or masker.default_budget
        self.random_token_prob, self.leave_unmasked_prob = random_token_prob, leave_unmasked_prob
        self.run_length, self.run_stdev = run_length, run_stdev

    def find_units(self, tokens: np.ndarray, draws: SequenceDraws) -> Tuple[np.ndarray, np.ndarray]:
        """Find where units begin, and which tokens are in units. *Shape:* ``[B, T]`` to two bool ``[B, T]``."""
        maskable = self.vocabulary.maskable[tokens]
        starts = self.masker.begin_units(tokens, maskable, draws)
        if starts is not maskable:
            starts = starts_after_gap(starts, maskable)
        if self.run_length != 1 or self.run_stdev != 0:
            starts = merge_units(starts, maskable, self.run_length, self.run_stdev, draws)
        return starts, maskable

    def draw(self, tokens: np.ndarray, draws: SequenceDraws) -> Plan:
        """Draw the plan of a batch padded on the right. *Shape:* int64 ``[B, T]``, ``T`` at most 2^24."""
        starts, maskable = self.find_units(tokens, draws)
        single = starts is maskable or np.array_equal(starts, maskable)
        ranked = rank_tokens(maskable, draws) if single else rank_units(starts, maskable, draws)
        if self.budget == "whole":
            depth = ranked.expand(ranked.begin + (ranked.cut if single else ranked.cut * ranked.length))
            depth = depth.reshape(tokens.shape)
        else:
            row_bits = draws.bits("row-cut", 1)
            depth = ranked.begin.reshape(tokens.shape) if single else _rank_inside(ranked, tokens.shape, row_bits)
            depth += 1.0 - to_uniform(row_bits)
        np.copyto(depth, np.inf, where=~maskable)
        count = np.count_nonzero(maskable, axis=1).astype(np.float64)
        return Plan(depth, count, self._replace(tokens, ranked, draws))

    def _replace(self, tokens: np.ndarray, ranked: Ranked, draws: SequenceDraws) -> Optional[np.ndarray]:
        p_random, p_same = self.random_token_prob, self.leave_unmasked_prob
        if p_random + p_same == 0:
            return None
        steps, kind = 1 << KIND_BITS, ranked.kind
        # the first stretch of the 24 bits and the last, so that "random" and "same" never overlap
        code = ((kind < np.uint64(round(p_random * steps))) & ranked.is_unit).view(np.uint8)
        code += 2 * (kind >= np.uint64(steps - round(p_same * steps))).view(np.uint8)
        code = ranked.expand(code)
        replacement = np.where((code >= 2).reshape(tokens.shape), tokens, self.vocabulary.mask)
        if p_random > 0:
            drawn = np.flatnonzero(code == 1)
            row = drawn // tokens.shape[1]
            u = draws.uniform_at("replacement-id", row, drawn - row * tokens.shape[1])
            replacement.ravel()[drawn] = self.vocabulary.draw_replacements(u)
        return replacement


def _rank_inside(ranked: Ranked, shape: Tuple[int, int], row_bits: np.ndarray) -> np.ndarray:
    """Rank all tokens, float64 ``[B, T]``. A sequence's lowest bit (of uint64 ``[B, 1]``) decides if ranks rise or fall in its
    units, so that truncation favours neither their beginnings nor that of the sequence."""
    down = (row_bits & np.uint64(1)).astype(bool)
    flipped = down[ranked.first // shape[1], 0]
    base = ranked.begin + np.where(flipped, ranked.first + ranked.length - 1, -ranked.first)
    place = np.arange(shape[0] * shape[1], dtype=np.float64).reshape(shape)
    place *= np.where(down, -1.0, 1.0)
    place += ranked.expand(base).reshape(shape)
    return place


def select(depth: torch.Tensor, count: torch.Tensor, rates: Rates) -> Tuple[torch.Tensor, torch.Tensor]:
    """Cut a plan at a pair of rates.

    Copy ``c`` of ``K`` corrupts depths in ``(c m_corr n, (c + 1) m_corr n]``; the last window may run past ``n`` and wraps around
    to depth 0. Predicted are corrupted tokens of depth at most ``m_pred n`` outside the wrapped part: disjoint sets over copies.

    Args:
        depth, count: of a :class:`Plan`, as tensors ``[B, T]`` and ``[B]``.

    Returns:
        corrupted and predicted, bool ``[B, K, T]``.
    """
    copies = rates.copies
    edges = [copy * rates.corruption for copy in range(copies + 1)]
    if copies == 1:
        corrupted = (depth <= (count * rates.corruption)[:, None])[:, None, :]
    else:
        bounds = (count[:, None] * torch.tensor(edges, dtype=depth.dtype).to(depth.device))[:, :, None]
        corrupted = (depth[:, None] > bounds[:, :-1]) & (depth[:, None] <= bounds[:, 1:])
    if rates.prediction >= min(edges[-1], 1.0):
        predicted = corrupted
    else:
        predicted = corrupted & (depth <= (count * rates.prediction)[:, None])[:, None, :]
    if edges[-1] > 1.0:
        corrupted = corrupted.clone()  # predicted may be the same tensor
        corrupted[:, -1] |= depth <= (count * (edges[-1] - 1.0))[:, None]
    return corrupted, predicted
