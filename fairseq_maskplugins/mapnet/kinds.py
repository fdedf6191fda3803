"""Kinds of tokens, to say which ones a proposal prefers (numpy and torch, no fairseq)."""

from typing import Dict, Optional, Sequence

import numpy as np
import torch

DECILES = 10


def frequency_deciles(counts: Sequence[int], maskable: np.ndarray) -> Optional[np.ndarray]:
    """Decile of each entry of the dictionary by frequency in running text: entries of decile 1 are the most frequent, and
    each decile makes up about a tenth of the text.

    Args:
        counts: of the ``V`` entries.
        maskable: bool ``[V]``; the others are left out.

    Returns:
        int64 ``[V]``, 1 to 10, 0 for entries left out; None where the counts say nothing.
    """
    counts = np.where(maskable, np.asarray(counts, dtype=np.float64), 0.0)
    if counts.max(initial=0.0) <= 1.0:  # a dictionary without real counts
        return None
    order = np.argsort(-counts, kind="stable")
    middle = np.cumsum(counts[order]) - counts[order] / 2
    deciles = np.zeros(len(counts), dtype=np.int64)
    deciles[order] = 1 + np.minimum(DECILES - 1, (DECILES * middle / counts.sum()).astype(np.int64))
    return np.where(maskable, deciles, 0)


def sum_by_group(relative: torch.Tensor, group: torch.Tensor, names: Sequence[str]) -> Dict[str, torch.Tensor]:
    """Sums and counts of ``relative`` by group.

    Args:
        relative: ``n q_i``, how much more often than uniformly a token is proposed. *Shape:* ``[N]``.
        group: int64 ``[N]``, indices into ``names``.

    Returns:
        ``q_NAME`` and ``n_q_NAME``, tensors of no dimension.
    """
    size = len(names)
    sums = torch.zeros(size, dtype=torch.float64, device=relative.device).index_add_(0, group, relative.double())
    counts = torch.zeros(size, dtype=torch.float64, device=relative.device).index_add_(
        0, group, torch.ones_like(relative, dtype=torch.float64)
    )
    return {
        **{f"q_{name}": value for name, value in zip(names, sums)},
        **{f"n_q_{name}": value for name, value in zip(names, counts)},
    }
