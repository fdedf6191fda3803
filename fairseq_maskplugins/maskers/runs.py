"""Merging units (tokens or words) into runs of given lengths (no fairseq here)."""

import numpy as np

from ..rng import RowDraws


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
    rows, width = atoms.shape
    number = np.cumsum(atoms, axis=1) - 1  # the atom that a token belongs to, counted from 0; -1 before the first
    begins_run = np.zeros((rows, width + 1), dtype=bool)  # by number of atom
    begins_run[np.arange(rows)[:, None], np.clip(ends_at, 0, width)] = True
    runs = atoms & np.take_along_axis(begins_run, np.maximum(number, 0), axis=1)
    return starts_after_gap(runs, maskable)


def merge_units(atoms: np.ndarray, maskable: np.ndarray, length: int, stdev: float, draws: RowDraws) -> np.ndarray:
    """Merge units as fairseq's options ``--mask-multiple-length`` and ``--mask-stdev`` ask.

    Stock fairseq draws starts and extends each of them, so runs overlap and the rate falls short. Here runs tile the
    row and the rate is exact. The first run of a row is cut at random, so that no position always begins a run.

    Args:
        atoms: bool ``[B, T]``, complete unit starts.
        maskable: bool ``[B, T]``.
        length: mean run length in atoms, >= 1; 1 with ``stdev`` 0 leaves the units as they are.
        stdev: standard deviation of the (normal, rounded, at least 1) lengths; 0 makes them all equal.
        draws: keyed draws of the rows.
    """
    width = atoms.shape[1]
    if stdev == 0:
        lengths = np.full(atoms.shape, length, dtype=np.int64)
    else:
        # Box-Muller: two uniforms make a normal; 1 - u keeps the logarithm finite
        radius = np.sqrt(-2.0 * np.log(1.0 - draws.uniform("run-radius", width)))
        normal = radius * np.cos(2.0 * np.pi * draws.uniform("run-angle", width))
        # lengths past the row's end are all the same; the bound keeps sums far from overflow
        lengths = np.clip(np.rint(length + stdev * normal), 1, width).astype(np.int64)
    offset = (draws.uniform("run-offset", 1) * lengths[:, :1]).astype(np.int64)
    return group_atoms(atoms, maskable, np.cumsum(lengths, axis=1) - offset)
