"""A user's own ``--user-dir``: it imports fairseq_maskplugins and adds a masker with an option of its own.

    fairseq-train DATA --user-dir examples/extending --task decoupled_mlm --masker every_nth --every-nth 3 ...

Copy this folder, rename it, and change ``begin_units``. Where fairseq_maskplugins is installed (``pip install``), the two
lines that change ``sys.path`` can go.
"""

import os
import sys
from dataclasses import dataclass, field

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))
import fairseq_maskplugins  # noqa: E402,F401  (registers the task and everything else)
from fairseq_maskplugins.errors import UsageError  # noqa: E402
from fairseq_maskplugins.maskers import Masker, MaskerConfig, register_masker  # noqa: E402


@dataclass
class EveryNthConfig(MaskerConfig):
    every_nth: int = field(default=2, metadata={"help": "units are blocks of this many tokens, from the row's start"})


@register_masker("every_nth", config=EveryNthConfig)
class EveryNthMasker(Masker):
    """Blocks of N tokens, counted from the start of the row, are masked together."""

    default_budget = "whole"

    def __init__(self, config, vocabulary):
        super().__init__(config, vocabulary)
        if config.every_nth < 1:
            raise UsageError(f"--every-nth must be at least 1, got {config.every_nth}")

    def begin_units(self, tokens, maskable, draws):
        return np.broadcast_to(np.arange(tokens.shape[1]) % self.config.every_nth == 0, tokens.shape)
