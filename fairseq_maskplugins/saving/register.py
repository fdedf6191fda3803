"""fairseq's saving of checkpoints, and what it says when a run can't go on, under our ``--user-dir``."""

import contextlib
import functools
import logging
import os
import sys
import time
import traceback
from typing import Any, Callable, Iterator, Optional

import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.trainer import Trainer

from ..errors import UsageError
from ..files import remove_abandoned, replacing
from . import write
from .endings import PATIENCE, explain_failure, read_patience, restore_patience

logger = logging.getLogger(__name__)

TRIES, PAUSE = 3, 2.5  # fairseq's own: a disk behind a network may come back


def _once(module: Any, name: str, make: Callable[[Any], Any], wrap: Callable[[Any], Any] = lambda f: f) -> None:
    old = getattr(module, name)
    if not getattr(old, "of_maskplugins", False):
        new = functools.wraps(old)(make(old))
        new.of_maskplugins = True
        setattr(module, name, wrap(new))


def _save_whole(save: Any) -> Any:
    """fairseq tries three times to write to the same open file: where the first try fails and the second does not, the
    checkpoint has half of one before it, and can't be read. Here each try begins at the beginning."""

    def torch_persistent_save(obj: Any, filename: str, async_write: bool = False) -> Any:
        if async_write or not PathManager.supports_rename(filename):
            return save(obj, filename, async_write=async_write)
        for left in reversed(range(TRIES)):
            try:
                with _replacing(filename) as temporary:
                    return write.save(obj, temporary)
            except UsageError:
                if not left:
                    raise
                time.sleep(PAUSE)

    return torch_persistent_save


@contextlib.contextmanager
def _replacing(filename: str) -> Iterator[str]:
    try:
        with replacing(filename, follow=False) as temporary:
            yield temporary
    except UsageError as error:
        raise UsageError(f"{error}; what was saved before is whole, and the same command goes on from there") from None


def _copy_whole(copy: Any) -> Any:
    """fairseq writes ``checkpoint_1_500.pt`` to a temporary name and renames it, but then copies it byte by byte over
    ``checkpoint_last.pt``: a run that is killed in that moment leaves half a file, and can't be resumed."""

    def copy_whole(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
        if "://" in str(dst_path) or (os.path.lexists(dst_path) and not overwrite):
            return copy(src_path, dst_path, overwrite=overwrite)
        with _replacing(dst_path) as temporary:
            copy(src_path, temporary, overwrite=True)
        return dst_path

    return copy_whole


def _verify(verify: Any) -> Any:
    def verify_checkpoint_directory(save_dir: str) -> None:
        try:
            verify(save_dir)
        except OSError as error:
            raise UsageError(f"--save-dir {save_dir}: can't write there: {error.strerror or error}") from None
        remove_abandoned(save_dir)

    return verify_checkpoint_directory


def _keep_patience(save: Any) -> Any:
    """fairseq counts the validations that ``--patience`` waits for in its process alone: a run that is killed and started
    again would begin to count anew, and train longer than one that was not."""

    def save_checkpoint(trainer: Any, filename: str, extra_state: Any) -> Any:
        found = read_patience(_stopper())
        if trainer.cfg.checkpoint.patience > 0 and found is not None:
            extra_state = {**extra_state, PATIENCE: found}
        return save(trainer, filename, extra_state)

    return save_checkpoint


def _stopper() -> Any:
    """The function that counts, of the module that trains: ``fairseq_cli.train``, or ``__main__`` where that was started as
    a program. None where another program trains."""
    frame = sys._getframe()
    while frame is not None and "should_stop_early" not in frame.f_globals:
        frame = frame.f_back
    return None if frame is None else frame.f_globals["should_stop_early"]


def _end_where_it_ended(load: Any) -> Any:
    """fairseq asks whether ``--max-update`` is reached after an update, and whether ``--patience`` is at an end after a
    validation: a run that is started again at its end, because it was killed before it could exit, say, would train and
    save more each time."""

    def load_checkpoint(cfg: Any, trainer: Any, *args: Any, **kwargs: Any) -> Any:
        loaded = load(cfg, trainer, *args, **kwargs)
        done, most = trainer.get_num_updates(), trainer.cfg.optimization.max_update or 0
        ended = f"the checkpoint has {done} updates, and --max-update is {most}" if 0 < most <= done else None
        found, path = (loaded[0] or {}).get(PATIENCE), getattr(trainer, "maskplugins_restored", None)
        # as fairseq's other record of what was best
        fresh = cfg.reset_optimizer or cfg.reset_meters or path == cfg.finetune_from_model
        if found is not None and cfg.patience > 0 and not fresh:
            waited = restore_patience(_stopper(), found, path)
            if waited >= cfg.patience:
                ended = f"the last {waited} validations were no better, and --patience is {cfg.patience}"
        if ended:
            logger.info(f"nothing is left to train: {ended}")
            trainer.cfg.optimization.max_epoch = -1  # which no epoch is below
        return loaded

    return load_checkpoint


def _find_dead_worker(error: Exception) -> Optional[str]:
    """What torch says of a data worker that died while a batch of its was fetched: the connection's error may come first."""
    frames = traceback.extract_tb(error.__traceback__)
    if not any(os.path.basename(frame.filename) == "resource_sharer.py" for frame in frames):
        return None
    for _ in range(40):
        try:
            torch._C._error_if_any_worker_fails()
            time.sleep(0.05)
        except RuntimeError as found:
            return str(found)
    return None


def _explain(call: Any) -> Any:
    def call_main(cfg: Any, main: Any, **kwargs: Any) -> Any:
        try:
            return call(cfg, main, **kwargs)
        except Exception as error:  # of this process, or what torch passes on of one that it started
            said = explain_failure(_find_dead_worker(error) or str(error))
            if said is None:
                raise
            raise UsageError(said) from None

    return call_main


_once(checkpoint_utils, "torch_persistent_save", _save_whole)
_once(checkpoint_utils, "verify_checkpoint_directory", _verify)
_once(checkpoint_utils, "load_checkpoint", _end_where_it_ended)
_once(Trainer, "save_checkpoint", _keep_patience)
_once(PathManager, "copy", _copy_whole, staticmethod)
_once(distributed_utils, "call_main", _explain)
