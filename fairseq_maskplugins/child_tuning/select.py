"""The top share of hundreds of millions of values, exactly, with ties settled by position."""

from typing import List, Sequence

import numpy as np

from ..errors import UsageError

CHUNK = 1 << 22  # values at a time, so that no copy of everything is ever made


def count_kept(total: int, reserve_p: float) -> int:
    """``reserve_p * total``, rounded half up, at least one."""
    return max(1, int(np.floor(reserve_p * total + 0.5)))


def _chunks(values: Sequence[np.ndarray]):
    for array in values:
        flat = array.reshape(-1)
        for begin in range(0, len(flat), CHUNK):
            # float32 values from +0 up are ordered as their bits are; adding 0 turns -0 into +0
            yield (flat[begin : begin + CHUNK] + np.float32(0)).view(np.uint32)


def select_top(values: Sequence[np.ndarray], reserve_p: float, names: Sequence[str] = ()) -> List[np.ndarray]:
    """Select the largest ``reserve_p`` of all values together, as bool arrays of the same shapes.

    Exactly :func:`count_kept` entries are selected; of equal values the first in order. Two passes of counting over the upper
    and lower halves of the values' bits find the threshold; nothing is sorted.

    Args:
        values: float32 arrays of any shapes, finite, 0 or more.
        reserve_p: fraction in (0, 1]; 1 selects everything.
    """
    for index, array in enumerate(values):
        if not (np.isfinite(array).all() and (array >= 0).all()):
            name = names[index] if index < len(names) else index
            raise UsageError(f"Fisher values must be finite and 0 or more; those of {name} are not")
    total = sum(array.size for array in values)
    if total == 0:
        raise UsageError("no parameter is covered and has a gradient: there is nothing to select from")
    kept = count_kept(total, reserve_p)
    upper = np.zeros(1 << 16, dtype=np.int64)
    for bits in _chunks(values):
        upper += np.bincount(bits >> np.uint32(16), minlength=1 << 16)
    high, above = _find(upper, kept)
    lower = np.zeros(1 << 16, dtype=np.int64)
    for bits in _chunks(values):
        lower += np.bincount(bits[bits >> np.uint32(16) == high] & np.uint32(0xFFFF), minlength=1 << 16)
    low, above_low = _find(lower, kept - above)
    threshold, ties = np.uint32((high << 16) | low), kept - above - above_low
    selected = []
    for array in values:
        parts = []
        for bits in _chunks([array]):
            chosen = bits > threshold
            equal = np.flatnonzero(bits == threshold)[:ties]
            chosen[equal] = True
            ties -= len(equal)
            parts.append(chosen)
        selected.append((np.concatenate(parts) if parts else np.zeros(0, dtype=bool)).reshape(array.shape))
    return selected


def _find(counts: np.ndarray, kept: int):
    """The bin that holds the ``kept``-th largest value, and how many lie in bins above it."""
    from_top = np.cumsum(counts[::-1])
    index = int(np.searchsorted(from_top, kept))
    return len(counts) - 1 - index, int(from_top[index - 1]) if index else 0
