"""Two faults of fairseq that lose checkpoints, fixed in place; nothing else of fairseq is replaced.

1. A failed ``torch.save`` is tried again on the same open file, so that the second try writes behind what the first has
   left, and the checkpoint cannot be read (``fairseq/checkpoint_utils.py``, ``_torch_persistent_save``, in 0.12.2 and
   on upstream's main branch).
2. ``checkpoint_1_500.pt`` is written to a temporary name and renamed, but then copied byte by byte over
   ``checkpoint_last.pt``: a run that is killed in that moment cannot be resumed (``save_checkpoint`` in the same file).
"""

import functools
import os
import time
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from .errors import UsageError, one_line
from .files import replacing

TRIES, PAUSE = 3, 2.5  # fairseq's own: a network disk may come back


def apply() -> None:
    """Put both fixes in place, once."""
    if not hasattr(PathManager.copy, "of_maskplugins"):
        checkpoint_utils._torch_persistent_save = _save
        PathManager.copy = staticmethod(_copy_atomically(PathManager.copy))


def _save(obj: Any, file: Any) -> None:
    """Write ``obj`` to an open file (or a path) with ``torch.save``; each try starts at the beginning of the file.

    Raises:
        UsageError: the last try failed, for example because the disk is full.
    """
    if isinstance(file, str):
        with PathManager.open(file, "wb") as opened:
            return _save(obj, opened)
    for left in reversed(range(TRIES)):
        try:
            if file.seekable():
                file.seek(0)
                file.truncate()
            return torch.save(obj, file)
        except (OSError, RuntimeError) as error:
            if not left:
                name = getattr(file, "name", "checkpoint")
                raise UsageError(f"{name}: can't write the checkpoint: {_reason(error)}; the previous one is intact")
            time.sleep(PAUSE)


def _reason(error: BaseException) -> str:
    """The operating system's words, which torch may have wrapped in an error of its own."""
    cause: Any = error
    while cause is not None and not getattr(cause, "strerror", None):
        cause = cause.__cause__ or cause.__context__
    return cause.strerror if cause is not None else one_line(error, 200)


def _copy_atomically(copy: Any) -> Any:
    @functools.wraps(copy)
    def copy_atomically(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
        if "://" in str(dst_path) or (os.path.lexists(dst_path) and not overwrite):
            return copy(src_path, dst_path, overwrite=overwrite)
        with replacing(dst_path) as temporary:
            return copy(src_path, temporary, overwrite=True)

    copy_atomically.of_maskplugins = True
    return copy_atomically
