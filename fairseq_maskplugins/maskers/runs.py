"""Merging units (tokens or words) into runs of given lengths (no fairseq here)."""

import numpy as np

from ..rng import SequenceDraws

MAX_LENGTH = 1 << 52  # a longer run is this long; whole numbers up to here are exact in float64


def starts_after_gap(starts: np.ndarray, maskable: np.ndarray) -> np.ndarray:
    """Complete unit starts: only maskable tokens start a unit, and one after a token that is not maskable always does.

    *Shape:* bool ``[B, T]`` each; returns a new array.
    """
    starts = starts & maskable
    starts[:, :1] |= maskable[:, :1]
    starts[:, 1:] |= maskable[:, 1:] & ~maskable[:, :-1]
    return starts


def group_atoms(atoms: np.ndarray, maskable: np.ndarray, ends_at: np.ndarray) -> np.ndarray:
    """Merge neighbouring atoms into runs whose lengths are counted in atoms.

    Args:
        atoms: bool ``[B, T]``, where atoms begin, complete (:func:`starts_after_gap`).
        maskable: bool ``[B, T]``.
        ends_at: int ``[B, R]``, increasing along a row: ``ends_at[b, j]`` is the number of atoms in the row's first
            ``j + 1`` runs. Atoms after the last end make one more run.

    Returns:
        bool ``[B, T]``, where runs begin. A token that is not maskable cuts a run short.
    """
    count = np.count_nonzero(atoms, axis=1)[:, None]
    place = np.flatnonzero(atoms)
    first = np.cumsum(count)[:, None] - count  # number of atoms in the rows before
    inside = ends_at < count
    runs = np.zeros(atoms.shape, dtype=bool)
    runs.ravel()[place[(first + ends_at)[inside]]] = True
    return starts_after_gap(runs, maskable)


def merge_units(atoms: np.ndarray, maskable: np.ndarray, length: int, stdev: float, draws: SequenceDraws) -> np.ndarray:
    """Merge units as fairseq's options ``--mask-multiple-length`` and ``--mask-stdev`` ask.

    fairseq draws starts and extends each of them, so runs overlap and the rate falls short. Here runs tile the sequence and the
    rate is exact. The first run is cut at random, so that no position always begins a run.

    Args:
        atoms: bool ``[B, T]``, complete unit starts.
        length: mean run length in units, >= 1; 1 with ``stdev`` 0 leaves the units as they are.
        stdev: standard deviation of the (normal, rounded, at least 1) lengths.
    """
    width = atoms.shape[1]
    length, stdev = min(length, MAX_LENGTH), min(stdev, MAX_LENGTH)
    if stdev == 0:
        lengths = np.full(atoms.shape, length, dtype=np.float64)
    else:
        # Box-Muller: two uniforms make a normal; 1 - u keeps the logarithm finite
        radius = np.sqrt(-2.0 * np.log(1.0 - draws.uniform("run-radius", width)))
        normal = radius * np.cos(2.0 * np.pi * draws.uniform("run-angle", width))
        lengths = np.clip(np.rint(length + stdev * normal), 1, MAX_LENGTH)
    lengths[:, :1] -= np.floor(draws.uniform("run-offset", 1) * lengths[:, :1])
    # lengths past the row's end are all the same; the bound keeps sums far from overflow
    return group_atoms(atoms, maskable, np.cumsum(np.minimum(lengths, width), axis=1).astype(np.int64))
