"""ChildTuning: gradients, or updates, of a part of the weights only (arXiv 2109.05687)."""

DEFAULT_RESERVE_P = 0.3
