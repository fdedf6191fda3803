"""Masking methods for fairseq, loaded with ``--user-dir fairseq_maskplugins``; without fairseq, a library of them.

Tasks, criterions, models and optimizers are registered where fairseq is running: it has been imported whenever it loads
a ``--user-dir``. Import :mod:`fairseq_maskplugins.plugins` to register them from a plug-in of your own.
"""

import os
import sys

__version__ = "0.2.0"


class _Path(list):
    """The package's ``__path__``. If the package has been imported already, perhaps before fairseq, fairseq looks up a
    ``--user-dir``, which may be a symlink, in it: then this is the moment to register."""

    def __contains__(self, path: object) -> bool:
        from . import plugins  # noqa: F401

        return os.path.realpath(str(path)) in map(os.path.realpath, self)


__path__ = _Path(__path__)

if "fairseq.tasks" in sys.modules:
    from . import plugins  # noqa: F401
