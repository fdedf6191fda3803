"""Reading blocks of a token stream (numpy, no fairseq)."""

from typing import Callable, Optional, Sequence

import numpy as np


class TokenStream:
    """Blocks ``[start, end)`` of the concatenated items of a data set.

    Args:
        sizes: lengths of the items, ``[N]``.
        fetch: gives item ``i`` as an integer array; used if there is no ``buffer``.
        buffer: the whole stream, ``[sum(sizes)]``, of which blocks are slices.
    """

    def __init__(self, sizes: Sequence[int], fetch: Callable[[int], np.ndarray], buffer: Optional[np.ndarray] = None):
        self.ends = np.cumsum(np.asarray(sizes, dtype=np.int64))
        self.fetch, self.buffer = fetch, buffer

    def __len__(self) -> int:
        """Tokens in the stream."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def read(self, start: int, end: int) -> np.ndarray:
        """Tokens ``[start, end)``; a read-only view of the buffer if there is one."""
        if self.buffer is not None:
            return self.buffer[start:end]
        if start == end:
            return np.zeros(0, dtype=np.int64)
        first = int(np.searchsorted(self.ends, start, side="right"))
        last = int(np.searchsorted(self.ends, end, side="left"))
        skip = start - (int(self.ends[first - 1]) if first else 0)
        parts = [self.fetch(item) for item in range(first, last + 1)]
        return np.concatenate(parts)[skip : skip + end - start]


def pad_rows(rows: Sequence[np.ndarray], pad: int, bos: Optional[int] = None) -> np.ndarray:
    """Stack integer arrays into int64 ``[B, T]``, padded on the right with ``pad``, with ``bos`` before each unless None."""
    shift = int(bos is not None)
    out = np.full((len(rows), shift + max(map(len, rows))), pad, dtype=np.int64)
    out[:, :shift] = bos or 0
    for line, row in zip(out, rows):
        line[shift : shift + len(row)] = row
    return out
