"""Masking methods for fairseq, loaded with ``--user-dir fairseq_maskplugins``; without fairseq, a library of them.

fairseq has been imported whenever it loads a ``--user-dir``: only then are tasks, criterions, models and optimizers
registered. Import :mod:`fairseq_maskplugins.plugins` to register them from a plug-in of your own.
"""

import sys

__version__ = "0.2.0"

if "fairseq.tasks" in sys.modules:
    from . import plugins  # noqa: F401
