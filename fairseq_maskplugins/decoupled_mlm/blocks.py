"""Reading blocks of a token stream (numpy, no fairseq)."""

from typing import Callable, Optional, Sequence

import numpy as np


class TokenStream:
    """Blocks ``[start, end)`` of the concatenated items of a data set.

    Of a contiguous buffer (a memory-mapped data set), a block is a slice; else its items are fetched one by one.

    Args:
        sizes: lengths of the items, ``[N]``.
        fetch: ``fetch(i)`` gives item ``i`` as an integer array; used where ``buffer`` is None.
        buffer: the whole stream, integers ``[sum(sizes)]``, or None.
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
        first = int(np.searchsorted(self.ends, start, side="right"))
        last = int(np.searchsorted(self.ends, end, side="left"))
        if start == end:
            return np.zeros(0, dtype=np.int64)
        skip = start - (int(self.ends[first - 1]) if first else 0)
        parts = [self.fetch(item) for item in range(first, last + 1)]
        return np.concatenate(parts)[skip : skip + end - start]


def pad_rows(rows: Sequence[np.ndarray], pad: int, bos: Optional[int] = None) -> np.ndarray:
    """Stack integer arrays into int64 ``[B, T]``, padded on the right with ``pad``, with ``bos`` before each unless None."""
    shift = 0 if bos is None else 1
    width = shift + max(map(len, rows))
    out = np.empty((len(rows), width), dtype=np.int64)
    if bos is not None:
        out[:, 0] = bos
    for line, row in zip(out, rows):
        end = shift + len(row)
        line[shift:end] = row
        line[end:] = pad
    return out
