"""Keyed draws: randomness as a function of its key, with no state.

A draw is a 64-bit hash of ``(seed, epoch, sample id, stream, position)``. The mask of a sample therefore depends neither
on the batch it stands in, nor on the worker or rank that computes it, nor on what was drawn before, and no global
generator is read or moved.

The construction: the words of a key are absorbed, one after the other, into two independent 64-bit lanes ``(a, b)`` by
the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014), a
bijection of 64-bit words. The draw at a position is the same finaliser applied to ``a + (position + 1) * GOLDEN``, with
``b`` mixed in between its two multiplications. Two keys share draws only where both lanes collide (128 bits). All
operations are integer operations modulo 2^64: results are equal on every platform.
"""

from functools import cache, lru_cache
from typing import Iterable, Tuple, Union

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_LANES = (0x243F6A8885A308D3, 0x13198A2E03707344)  # first digits of pi, two lanes
_FULL = (1 << 64) - 1

Words = Union[int, np.ndarray]


def mix(z: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser, a bijection of 64-bit words. *Shape:* any, ``uint64``; returns a new array."""
    z = z ^ (z >> np.uint64(30))
    z *= _M1
    z ^= z >> np.uint64(27)
    z *= _M2
    z ^= z >> np.uint64(31)
    return z


@cache
def stream_word(name: str) -> int:
    """The 64-bit word that stands for a stream's name (FNV-1a over its UTF-8 bytes)."""
    word = 0xCBF29CE484222325
    for byte in name.encode("utf-8"):
        word = ((word ^ byte) * 0x100000001B3) & _FULL
    return word


def _as_words(value: Words) -> np.ndarray:
    if isinstance(value, (int, np.integer)):
        return np.array([int(value) & _FULL], dtype=np.uint64)
    value = np.asarray(value)
    # negative ids keep their two's complement bits
    return value.astype(np.int64).view(np.uint64) if value.dtype.kind == "i" else value.astype(np.uint64)


def make_keys(words: Iterable[Words], stream: str) -> Tuple[np.ndarray, np.ndarray]:
    """Absorb the words of a key into two lanes, ``uint64 [B]`` (``[1]`` if all words are single integers).

    Args:
        words: seed, epoch, sample ids: integers, taken modulo 2^64, or integer arrays ``[B]``.
        stream: name of the draw; different names give independent draws.
    """
    words = list(words)
    leading = 0
    while leading < len(words) and isinstance(words[leading], (int, np.integer)):
        leading += 1
    prefix = tuple(int(word) & _FULL for word in words[:leading])
    state = np.array(_absorb_integers((stream_word(stream),) + prefix), dtype=np.uint64)[:, None]  # [2, 1]
    for word in words[leading:]:
        # mixing the word first keeps small neighbouring seeds, epochs and ids from cancelling in the xor
        state = mix(state ^ mix(_as_words(word) + GOLDEN)) + GOLDEN
    return state[0], state[1]


@lru_cache(maxsize=1024)
def _absorb_integers(words: Tuple[int, ...]) -> Tuple[int, int]:
    """The two lanes after words that are the same for a whole batch, with Python's integers."""
    lanes = []
    for state in _LANES:
        for word in words:
            state = (_mix_integer(state ^ _mix_integer((word + int(GOLDEN)) & _FULL)) + int(GOLDEN)) & _FULL
        lanes.append(state)
    return lanes[0], lanes[1]


def _mix_integer(z: int) -> int:
    z = ((z ^ (z >> 30)) * int(_M1)) & _FULL
    z = ((z ^ (z >> 27)) * int(_M2)) & _FULL
    return z ^ (z >> 31)


def bits(keys: Tuple[np.ndarray, np.ndarray], positions: np.ndarray) -> np.ndarray:
    """64 random bits for each key (two ``uint64`` lanes) and position (integers >= 0), of their broadcast shape."""
    a, b = keys
    z = a + (positions.astype(np.uint64) + np.uint64(1)) * GOLDEN
    shifted = np.empty_like(z)  # one scratch array: fresh memory for every step would cost as much as the arithmetic

    def fold(shift: int) -> None:
        np.right_shift(z, np.uint64(shift), out=shifted)
        np.bitwise_xor(z, shifted, out=z)

    fold(30)
    np.multiply(z, _M1, out=z)
    np.bitwise_xor(z, b, out=z)
    fold(27)
    np.multiply(z, _M2, out=z)
    fold(31)
    return z


def to_uniform(z: np.ndarray) -> np.ndarray:
    """Map 64 bits to a float64 in [0, 1): 0 is possible, 1 is not; the grid is 2^-53."""
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


class SequenceDraws:
    """The draws of a batch of sequences, keyed by seed, epoch (any integers) and sample ids, integers ``[B]``."""

    def __init__(self, seed: int, epoch: int, ids: np.ndarray):
        self.seed, self.epoch, self.ids = int(seed), int(epoch), np.asarray(ids)

    def keys(self, stream: str) -> Tuple[np.ndarray, np.ndarray]:
        """Keys of the rows for one stream. *Shape:* two arrays ``[B]``."""
        return make_keys((self.seed, self.epoch, self.ids), stream)

    def bits(self, stream: str, length: int) -> np.ndarray:
        """64 bits for every position of every row. *Shape:* ``[B, length]``, ``uint64``."""
        a, b = self.keys(stream)
        return bits((a[:, None], b[:, None]), np.arange(length))

    def uniform(self, stream: str, length: int) -> np.ndarray:
        """Uniform numbers in [0, 1) for every position. *Shape:* ``[B, length]``, ``float64``."""
        return to_uniform(self.bits(stream, length))

    def bits_at(self, stream: str, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The same words as :meth:`bits`, only at ``(rows[i], positions[i])``. *Shape:* ``[N]``."""
        a, b = self.keys(stream)
        return bits((a[rows], b[rows]), positions)

    def uniform_at(self, stream: str, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The same numbers as :meth:`uniform`, only at ``(rows[i], positions[i])``. *Shape:* ``[N]``."""
        return to_uniform(self.bits_at(stream, rows, positions))
