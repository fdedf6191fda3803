"""The keyed draws of ``rng.py`` on a device: the same bits, computed by torch where the ids already are (no fairseq).

torch has no unsigned 64-bit arithmetic: words are ``int64`` with the same bits. Addition, multiplication and xor do not
care; a shift to the right has to clear the copies of the sign.
"""

from typing import Tuple

import torch

from . import rng


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


_GOLDEN, _M1, _M2 = (_signed(int(word)) for word in (rng.GOLDEN, rng._M1, rng._M2))


def _shift(z: torch.Tensor, by: int) -> torch.Tensor:
    return (z >> by) & ((1 << (64 - by)) - 1)


def _mix(z: torch.Tensor) -> torch.Tensor:
    z = (z ^ _shift(z, 30)) * _M1
    z = (z ^ _shift(z, 27)) * _M2
    return z ^ _shift(z, 31)


def row_keys(words: Tuple[int, ...], ids: torch.Tensor, stream: str) -> Tuple[torch.Tensor, torch.Tensor]:
    """The two lanes of ``rng.make_keys((*words, ids), stream)``. *Shape:* ids int64 ``[B]`` to two int64 ``[B]``."""
    prefix = (rng.stream_word(stream),) + tuple(int(word) & rng._FULL for word in words)
    a, b = (_mix(_signed(state) ^ _mix(ids + _GOLDEN)) + _GOLDEN for state in rng._absorb_integers(prefix))
    return a, b


def row_bits(words: Tuple[int, ...], ids: torch.Tensor, stream: str, length: int) -> torch.Tensor:
    """The bits of ``rng.SequenceDraws(...).bits(stream, length)`` for a key of these words. *Shape:* int64 ``[B, length]``."""
    a, b = row_keys(words, ids, stream)
    z = a[:, None] + torch.arange(1, length + 1, device=ids.device) * _GOLDEN
    z = (z ^ _shift(z, 30)) * _M1 ^ b[:, None]
    z = (z ^ _shift(z, 27)) * _M2
    return z ^ _shift(z, 31)


def row_uniform(words: Tuple[int, ...], ids: torch.Tensor, stream: str, length: int) -> torch.Tensor:
    """Uniform numbers strictly between 0 and 1, on the midpoints of a grid of 2^-52. *Shape:* float64 ``[B, length]``."""
    # 52 bits: with 53 the midpoint below 1 would round to 1
    return (_shift(row_bits(words, ids, stream, length), 12).double() + 0.5) * 2.0**-52
