"""Ranking the units of a batch by random keys (numpy, no fairseq).

Two ways to the same ranks: where every unit is one token, rows are sorted as a matrix; else units are laid out in one
flat list, so that the work shrinks with their number. A unit's draw is 64 bits of stream ``unit`` at the position where
it begins. The high 32 rank it (equal ones stand in the order of their positions; how many bits rank never depends on the
batch, so neither do the ranks), the low 24 say what it becomes, and a further round of mixing says where it is cut.
"""

from typing import NamedTuple, Optional

import numpy as np

from ..rng import GOLDEN, RowDraws, mix, to_uniform

RANK_BITS, KIND_BITS = 32, 24
_RANK = np.uint64(((1 << RANK_BITS) - 1) << (64 - RANK_BITS))
_KIND = np.uint64((1 << KIND_BITS) - 1)
_OUTSIDE = np.uint64(1 << (63 - RANK_BITS))  # above every position (a row has at most 2^24)


class Ranked(NamedTuple):
    """Ranked units. ``S`` segments tile the flat ``[B T]`` batch; a segment is a unit, or a token that is in none.

    Attributes:
        begin: float64 ``[S]``, the rank at which a unit begins; undefined where a segment is no unit.
        draw: uint64 ``[S]``, the unit's 64 random bits; undefined where a segment is no unit.
        is_unit: bool ``[S]``.
        first: int64 ``[S]``, flat position of the segment's first token; None where all segments are single tokens.
        length: int64 ``[S]``, or None in the same case.
        segment: int64 ``[B T]``, the segment of each token, or None in the same case.
    """

    begin: np.ndarray
    draw: np.ndarray
    is_unit: np.ndarray
    first: Optional[np.ndarray] = None
    length: Optional[np.ndarray] = None
    segment: Optional[np.ndarray] = None

    @property
    def kind(self) -> np.ndarray:
        """24 random bits, uint64 ``[S]``: what a unit becomes where it is corrupted."""
        return self.draw & _KIND

    @property
    def cut(self) -> np.ndarray:
        """Uniform in (0, 1], ``[S]``: where in a unit's stretch of ranks budget ``whole`` takes it."""
        return 1.0 - to_uniform(mix(self.draw + GOLDEN))

    def expand(self, values: np.ndarray) -> np.ndarray:
        """Give every token its segment's value. *Shape:* ``[S]`` to ``[B T]``."""
        return values if self.segment is None else np.take(values, self.segment)


def rank_tokens(maskable: np.ndarray, draws: RowDraws) -> Ranked:
    """Rank single tokens. *Shape:* ``[B, T]``."""
    rows, width = maskable.shape
    draw = draws.bits("unit", width)
    # the low bits now hold the position: keys of a row are distinct, and a plain sort, much faster than argsort, ranks
    key = draw & _RANK
    key |= np.arange(width, dtype=np.uint64)
    # to the end of the row, behind a token that may be masked and drew the largest rank
    np.bitwise_or(key, _RANK | _OUTSIDE, out=key, where=~maskable)
    key.sort(axis=1)
    key &= ~(_RANK | _OUTSIDE)
    order = key.view(np.int64)
    order += (np.arange(rows) * width)[:, None]
    begin = np.empty(rows * width)
    begin[order.ravel()] = np.tile(np.arange(width, dtype=np.float64), rows)
    return Ranked(begin, draw.ravel(), maskable.ravel())


def rank_units(starts: np.ndarray, maskable: np.ndarray, draws: RowDraws) -> Ranked:
    """Rank units of any lengths.

    Args:
        starts: bool ``[B, T]``, complete unit starts.
        maskable: bool ``[B, T]``.
    """
    rows, width = starts.shape
    boundary = (starts | ~maskable).ravel()
    first = np.flatnonzero(boundary)
    length = np.diff(first, append=rows * width)
    segment = np.cumsum(boundary) - 1
    is_unit = starts.ravel()[first]
    units = np.flatnonzero(is_unit)  # segment numbers of the units, row by row
    position = first[units]
    row = np.repeat(np.arange(rows), np.count_nonzero(starts, axis=1))
    draw = draws.bits_at("unit", row, position - row * width)

    # sort (row, ranking bits, number of the unit) in one go: the order stays row by row
    row_bits, number_bits = int(rows - 1).bit_length(), int(len(units)).bit_length()
    if row_bits + number_bits > 64 - RANK_BITS:
        return _rank_in_parts(starts, maskable, draws)
    low = np.uint64((1 << (64 - RANK_BITS - row_bits)) - 1)
    key = draw >> np.uint64(row_bits)
    key &= ~low
    if row_bits:
        key |= row.astype(np.uint64) << np.uint64(64 - row_bits)
    key |= np.arange(len(units), dtype=np.uint64)
    key.sort()
    key &= low
    order = key.view(np.int64)

    in_order = length[units][order]
    tokens_before_row = np.concatenate([[0], np.cumsum(np.count_nonzero(maskable, axis=1))[:-1]])
    ranked = Ranked(np.zeros(len(first)), np.zeros(len(first), dtype=np.uint64), is_unit, first, length, segment)
    ranked.begin[units[order]] = np.cumsum(in_order) - in_order - tokens_before_row[row]
    ranked.draw[units] = draw
    return ranked


def _rank_in_parts(starts: np.ndarray, maskable: np.ndarray, draws: RowDraws) -> Ranked:
    """A batch of billions of tokens, in two halves."""
    half = len(starts) // 2
    parts = [
        rank_units(starts[rows], maskable[rows], RowDraws(draws.seed, draws.epoch, draws.ids[rows]))
        for rows in (slice(None, half), slice(half, None))
    ]
    first, segment = parts[1].first + half * starts.shape[1], parts[1].segment + len(parts[0].first)
    parts[1] = parts[1]._replace(first=first, segment=segment)
    return Ranked(*(np.concatenate(fields) for fields in zip(*parts)))
