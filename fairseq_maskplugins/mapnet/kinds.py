"""Classes of tokens, for metrics of the proposal (numpy and torch, no fairseq)."""

from typing import Dict, Optional, Sequence

import numpy as np
import torch

DECILES = 10


def frequency_deciles(counts: Sequence[int], maskable: np.ndarray) -> Optional[np.ndarray]:
    """Decile of each entry by frequency, int64 ``[V]``: 1 has the most frequent entries, each makes up a tenth of the text, 0
    are entries that are not maskable. None if the counts are all equal."""
    counts = np.where(maskable, np.asarray(counts, dtype=np.float64), 0.0)
    if counts.max(initial=0.0) <= 1.0:  # a dictionary without real counts
        return None
    order = np.argsort(-counts, kind="stable")
    middle = np.cumsum(counts[order]) - counts[order] / 2
    deciles = np.zeros(len(counts), dtype=np.int64)
    deciles[order] = 1 + np.minimum(DECILES - 1, (DECILES * middle / counts.sum()).astype(np.int64))
    return np.where(maskable, deciles, 0)


def sum_by_group(relative: torch.Tensor, group: torch.Tensor, names: Sequence[str]) -> Dict[str, torch.Tensor]:
    """Sums ``q_NAME`` and counts ``n_q_NAME`` of ``relative`` (``n q_i``) by group. *Shape:* ``[N]``, indices into ``names``."""
    relative = relative.double()
    zeros = torch.zeros(len(names), dtype=torch.float64, device=relative.device)
    sums, counts = zeros.index_add(0, group, relative), zeros.index_add(0, group, torch.ones_like(relative))
    return {f"{kind}_{name}": v for kind, values in (("q", sums), ("n_q", counts)) for name, v in zip(names, values)}
