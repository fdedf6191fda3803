"""What GLUE scores besides accuracy, on numpy arrays (no fairseq here). Nothing correlates with a constant: 0 there, no NaN."""

from typing import Callable, Dict

import numpy as np


def pearson(predicted: np.ndarray, target: np.ndarray) -> float:
    """Pearson's correlation of two rows of numbers, in [-1, 1]."""
    x, y = (np.asarray(values, dtype=np.float64) for values in (predicted, target))
    if x.min() == x.max() or y.min() == y.max():
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    return float((x @ y) / np.sqrt((x @ x) * (y @ y)))


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def spearman(predicted: np.ndarray, target: np.ndarray) -> float:
    """Spearman's correlation: Pearson's of the ranks."""
    return pearson(ranks(predicted), ranks(target))


def mcc(predicted: np.ndarray, target: np.ndarray) -> float:
    """Matthews' correlation of two rows of 0 and 1: Pearson's of them."""
    return pearson(predicted, target)


def f1(predicted: np.ndarray, target: np.ndarray) -> float:
    """F1 of class 1, in [0, 1]; 0 where it is neither predicted nor there."""
    predicted, target = np.asarray(predicted) == 1, np.asarray(target) == 1
    wrong, right = int((predicted != target).sum()), int((predicted & target).sum())
    return 2 * right / (2 * right + wrong) if right else 0.0


MEASURES: Dict[str, Callable[[np.ndarray, np.ndarray], float]] = {"mcc": mcc, "f1": f1, "pearson": pearson, "spearman": spearman}
OF_CLASSES = ("mcc", "f1")
OF_NUMBERS = ("pearson", "spearman")
