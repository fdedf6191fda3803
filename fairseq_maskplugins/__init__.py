"""Masking methods for fairseq, loaded with ``--user-dir fairseq_maskplugins``; without fairseq, a library of them.

Tasks, criterions, models and optimizers are registered where fairseq is running: it has been imported whenever it loads
a ``--user-dir``. Import :mod:`fairseq_maskplugins.plugins` to register them from a plug-in of your own.
"""

import sys

__version__ = "0.2.0"


class _Path(list):
    """The package's ``__path__``. fairseq looks a ``--user-dir`` up in it if the package has been imported already, perhaps
    before fairseq: then this is the moment to register."""

    def __contains__(self, path: object) -> bool:
        from . import plugins  # noqa: F401

        return super().__contains__(path)


__path__ = _Path(__path__)

if "fairseq.tasks" in sys.modules:
    from . import plugins  # noqa: F401
