"""Two faults of fairseq that lose checkpoints, fixed in place; nothing else of fairseq is replaced.

1. A failed ``torch.save`` is tried again on the same open file, so that the second try writes behind what the first has
   left, and the checkpoint cannot be read (``fairseq/checkpoint_utils.py``, ``_torch_persistent_save``, in 0.12.2 and
   on upstream's main branch). Here each try opens the file anew.
2. ``checkpoint_1_500.pt`` is written to a temporary name and renamed, but then copied byte by byte over
   ``checkpoint_last.pt``: a run that is killed in that moment cannot be resumed (``save_checkpoint`` in the same file).
   Here the copy is renamed too.
"""

import contextlib
import functools
import os
import time
from typing import Any, Iterator

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from .errors import UsageError
from .files import reason_of

TRIES, PAUSE = 3, 2.5  # fairseq's own: a network disk may come back


def apply() -> None:
    """Put both fixes in place, once."""
    if not hasattr(PathManager.copy, "of_maskplugins"):
        checkpoint_utils.torch_persistent_save = _save_atomically(checkpoint_utils.torch_persistent_save)
        PathManager.copy = staticmethod(_copy_atomically(PathManager.copy))


@contextlib.contextmanager
def _replacing(path: str) -> Iterator[str]:
    """Yield fairseq's temporary name for ``path`` and rename the file at the end; a restarted run uses the name again."""
    temporary = f"{path}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        reason = reason_of(error)
        raise UsageError(f"{path}: can't write the checkpoint: {reason}; the previous one is intact") from None


def _save_atomically(save: Any) -> Any:
    @functools.wraps(save)
    def torch_persistent_save(obj: Any, filename: str, async_write: bool = False) -> Any:
        if async_write or not PathManager.supports_rename(filename):
            return save(obj, filename, async_write=async_write)
        for left in reversed(range(TRIES)):
            try:
                with _replacing(filename) as temporary, open(temporary, "wb") as file:
                    return torch.save(obj, file)
            except UsageError:
                if not left:
                    raise
                time.sleep(PAUSE)

    return torch_persistent_save


def _copy_atomically(copy: Any) -> Any:
    @functools.wraps(copy)
    def copy_atomically(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
        if "://" in str(dst_path) or (os.path.lexists(dst_path) and not overwrite):
            return copy(src_path, dst_path, overwrite=overwrite)
        with _replacing(dst_path) as temporary:
            return copy(src_path, temporary, overwrite=True)

    copy_atomically.of_maskplugins = True
    return copy_atomically
