"""Which entries of a model are selected, as words of 32 bits: 1 where an entry is selected, 0 elsewhere.

Positions count the entries of all parameters in the optimizer's order, so that a mask is the same whether the optimizer
is handed tensor after tensor or one flat copy of them. The bits of a float32, seen as an integer, times such a word are
the float itself or +0, whatever it is; this happens in cache, and no mask of the model's size is ever written.
"""

from bisect import bisect_right
from typing import Iterator, List, Optional, Sequence, Tuple

import numpy as np
import torch

from ..rng import bits as draw_bits
from ..rng import make_keys

CELL = 1 << 17  # positions that share a key; part of the definition of the masks
RUN = 2 * CELL  # entries that are worked on at once on a CPU: few enough to stay in cache, enough to pay for their calls
SHIFT = 15
MULTIPLIER = 0x846CA68B - (1 << 32)  # as a signed word; any odd constant with well spread bits
CELLS_AT_ONCE = 32  # on an accelerator, where small chunks would wait for their launches


def words(z: np.ndarray) -> np.ndarray:
    """The upper halves of 64-bit draws, as signed 32-bit words."""
    return (z >> np.uint64(32)).astype(np.uint32).view(np.int32)


def cell_table() -> np.ndarray:
    """``CELL`` fixed random words, one for each position in a cell. *Shape:* ``[CELL]``, ``int32``."""
    return words(draw_bits(make_keys((0,), "child_tuning_table"), np.arange(CELL)))


def threshold(reserve_p: float) -> int:
    """What a signed word has to lie below, for a share of ``reserve_p``; 2^31 selects everything."""
    return max(1, int(reserve_p * 2**32 + 0.5)) - 2**31


def grid_share(reserve_p: float) -> float:
    """The share that :class:`KeyedMask` really selects: ``reserve_p`` on its grid of 2^-32, at least one step."""
    return (threshold(reserve_p) + 2**31) / 2**32


class KeyedMask:
    """ChildTuning-F: every entry is selected with probability ``reserve_p``, anew at each update.

    The draw at a position is a hash of ``(seed, update, position)``. A cell of ``CELL`` positions has two 32-bit keys
    ``a`` and ``b`` from the 64-bit lanes of :mod:`~fairseq_maskplugins.rng`; with ``h`` the cell's fixed random words,
    ``x = (h ^ a) * (b | 1)``, ``x ^= x >> 15``, ``x *= MULTIPLIER``, in signed 32-bit arithmetic; selected where
    ``x + 2^31`` is below ``reserve_p * 2^32``. Integer operations only: equal on every rank and device.

    Args:
        seed: any integer.
        reserve_p: share that is kept, in (0, 1]; on a grid of 2^-32; 1 selects everything.
        total: number of positions.
    """

    def __init__(self, seed: int, reserve_p: float, total: int):
        self.seed, self.threshold, self.total = int(seed), threshold(reserve_p), total
        self._update: Optional[int] = None
        self._tables: dict = {}

    def pieces(self, start: int, length: int, device: torch.device) -> Iterator[Tuple[int, int, bool]]:
        """Cut ``[start, start + length)`` into runs ``(low, high, covered)`` small enough to work on at once."""
        span = RUN if device.type == "cpu" else CELL * CELLS_AT_ONCE
        low, end = start, start + length
        while low < end:
            high = min(end, (low // span + 1) * span)
            yield low, high, self.threshold < 2**31
            low = high

    def fill(self, update: int, low: int, high: int, out: torch.Tensor, spare: torch.Tensor) -> None:
        """Write the words of positions ``[low, high)`` at an update. *Shape:* ``out``, ``spare`` ``[high - low]``."""
        table = self._table(out.device)
        if update != self._update:
            cells = np.arange(-(-self.total // CELL))
            a, b = make_keys((self.seed, update, cells), "child_tuning")
            self._update, self._keys = update, (words(a), words(b) | np.int32(1))
        begin = low
        while begin < high:
            cell, offset = divmod(begin, CELL)
            whole = 0 if offset else (high - begin) // CELL
            if whole > 1:  # many cells at once
                a, b = (torch.from_numpy(key[cell : cell + whole]).to(out.device)[:, None] for key in self._keys)
                end = begin + whole * CELL
                target = out[begin - low : end - low].view(whole, CELL)
                torch.bitwise_xor(table, a, out=target)
                target.mul_(b)
            else:
                end = min(high, (cell + 1) * CELL)
                target = out[begin - low : end - low]
                a, b = (int(key[cell]) for key in self._keys)
                torch.bitwise_xor(table[offset : offset + end - begin], a, out=target)
                target.mul_(b)
            begin = end
        torch.bitwise_right_shift(out, SHIFT, out=spare)
        out.bitwise_xor_(spare).mul_(MULTIPLIER).lt_(min(self.threshold, 2**31 - 1))

    def _table(self, device: torch.device) -> torch.Tensor:
        if device not in self._tables:
            self._tables[device] = torch.from_numpy(cell_table()).to(device)
        return self._tables[device]


class FixedMask:
    """ChildTuning-D: a mask that stays, one byte for each covered entry.

    Args:
        sizes: number of entries of each parameter, in the optimizer's order.
        selected: for each parameter a boolean tensor of its size, or None where it is not covered and trains freely.
    """

    def __init__(self, sizes: Sequence[int], selected: Sequence[Optional[torch.Tensor]]):
        self.starts = np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))]).tolist()
        self.total = self.starts[-1]
        # bytes of 0 and 1 become words faster than booleans do
        self.masks: List[Optional[torch.Tensor]] = [
            None if mask is None else mask.reshape(-1).view(torch.int8) for mask in selected
        ]

    def pieces(self, start: int, length: int, device: torch.device) -> Iterator[Tuple[int, int, bool]]:
        """Runs ``(low, high, covered)`` that each lie in one parameter: what is not covered takes another path."""
        span = RUN if device.type == "cpu" else CELL * CELLS_AT_ONCE
        low, end = start, start + length
        while low < end:
            index = bisect_right(self.starts, low) - 1
            high = min(end, self.starts[index + 1], low + span)
            yield low, high, self.masks[index] is not None
            low = high

    def fill(self, update: int, low: int, high: int, out: torch.Tensor, spare: torch.Tensor) -> None:
        """Write the words of covered positions ``[low, high)`` of one parameter; ``update`` has no effect."""
        index = bisect_right(self.starts, low) - 1
        if self.masks[index].device != out.device:
            self.masks[index] = self.masks[index].to(out.device)
        begin = self.starts[index]
        out.copy_(self.masks[index][low - begin : high - begin])
