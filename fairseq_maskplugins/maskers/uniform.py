"""``--masker uniform``: every token is a unit of its own."""

import numpy as np

from ..rng import SequenceDraws
from .base import Masker, register_masker


@register_masker("uniform")
class UniformMasker(Masker):
    """Every maskable token is a unit."""

    default_budget = "exact"
    can_merge = True

    def begin_units(self, tokens: np.ndarray, maskable: np.ndarray, draws: SequenceDraws) -> np.ndarray:
        return maskable
