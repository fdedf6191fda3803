"""Ranking the units of a batch by random keys (numpy, no fairseq).

Single tokens are sorted as a matrix, longer units as one flat list, with the same ranks. A unit's draw is 64 bits of stream
``unit`` at the position where it begins: the high 32 rank it (equal ones in the order of their positions), the low 24 decide
what it becomes, and a further round of mixing decides where it is cut. Ranks never depend on the batch.
"""

from typing import NamedTuple, Optional

import numpy as np

from ..rng import GOLDEN, SequenceDraws, mix, to_uniform

RANK_BITS, KIND_BITS = 32, 24
_RANK = np.uint64(((1 << RANK_BITS) - 1) << (64 - RANK_BITS))
_KIND = np.uint64((1 << KIND_BITS) - 1)
_OUTSIDE = np.uint64(1 << (63 - RANK_BITS))  # above every position (a sequence has at most 2^24)


class Ranked(NamedTuple):
    """Ranked units. ``S`` segments tile the flat ``[B T]`` batch; a segment is a unit, or a token that is in none.

    Attributes:
        begin: float64 ``[S]``, the rank at which a unit begins.
        draw: uint64 ``[S]``, the unit's 64 random bits.
        is_unit: bool ``[S]``; elsewhere ``begin`` and ``draw`` are undefined.
        first: int64 ``[S]``, flat position of the segment's first token. This and the following are None for single tokens.
        length: int64 ``[S]``.
        segment: int64 ``[B T]``, the segment of each token.
    """

    begin: np.ndarray
    draw: np.ndarray
    is_unit: np.ndarray
    first: Optional[np.ndarray] = None
    length: Optional[np.ndarray] = None
    segment: Optional[np.ndarray] = None

    @property
    def kind(self) -> np.ndarray:
        """24 random bits, uint64 ``[S]``: what a corrupted unit becomes."""
        return self.draw & _KIND

    @property
    def cut(self) -> np.ndarray:
        """Uniform in (0, 1], ``[S]``: where in a unit's range of ranks budget ``whole`` cuts."""
        return 1.0 - to_uniform(mix(self.draw + GOLDEN))

    def expand(self, values: np.ndarray) -> np.ndarray:
        """Give every token its segment's value. *Shape:* ``[S]`` to ``[B T]``."""
        return values if self.segment is None else np.take(values, self.segment)


def rank_tokens(maskable: np.ndarray, draws: SequenceDraws) -> Ranked:
    """Rank single tokens. *Shape:* ``[B, T]``."""
    rows, width = maskable.shape
    draw = draws.bits("unit", width)
    # with the position in the low bits, keys are distinct, and a plain sort, much faster than argsort, ranks
    key = draw & _RANK
    key |= np.arange(width, dtype=np.uint64)
    # to the end, even behind a maskable token that drew the largest rank
    np.bitwise_or(key, _RANK | _OUTSIDE, out=key, where=~maskable)
    key.sort(axis=1)
    key &= ~(_RANK | _OUTSIDE)
    order = key.view(np.int64)
    order += (np.arange(rows) * width)[:, None]
    begin = np.empty(rows * width)
    begin[order.ravel()] = np.tile(np.arange(width, dtype=np.float64), rows)
    return Ranked(begin, draw.ravel(), maskable.ravel())


def rank_units(starts: np.ndarray, maskable: np.ndarray, draws: SequenceDraws) -> Ranked:
    """Rank units of any lengths. *Shape:* bool ``[B, T]``; ``starts`` also holds the starts after gaps."""
    rows, width = starts.shape
    boundary = (starts | ~maskable).ravel()
    first = np.flatnonzero(boundary)
    length = np.diff(first, append=rows * width)
    segment = np.cumsum(boundary) - 1
    is_unit = starts.ravel()[first]
    units = np.flatnonzero(is_unit)  # segment numbers of the units, sequence by sequence
    position = first[units]
    row = np.repeat(np.arange(rows), np.count_nonzero(starts, axis=1))
    draw = draws.bits_at("unit", row, position - row * width)

    # sort (row, ranking bits, number of the unit) in one go
    row_bits, number_bits = int(rows - 1).bit_length(), int(len(units)).bit_length()
    if row_bits + number_bits > 64 - RANK_BITS:  # a large batch does not fit: the same order, more slowly
        order = np.lexsort((draw & _RANK, row))
    else:
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
