"""Reading checkpoint files for the tools: one line where a file is missing, damaged, refused, or no checkpoint."""

import pickle
from typing import Any, Callable, Optional

import torch
from fairseq import checkpoint_utils

from ..compat import refused
from ..errors import UsageError


def load_checkpoint_file(path: str) -> dict:
    """What a checkpoint file holds, as it was saved, on the CPU.

    Raises:
        UsageError: the file is missing, damaged, or holds what torch refuses to load.
    """
    return _read_checkpoint(path, lambda: torch.load(path, map_location="cpu"))


def load_upgraded_checkpoint(path: str, overrides: Optional[dict] = None) -> dict:
    """What a checkpoint file holds, as fairseq reads it: brought to the form of this version.

    Args:
        path: the file.
        overrides: options that count in place of the checkpoint's.

    Raises:
        UsageError: the file is missing, damaged, or holds what torch refuses to load.
    """
    return _read_checkpoint(path, lambda: checkpoint_utils.load_checkpoint_to_cpu(path, overrides))


def _read_checkpoint(path: str, read: Callable[[], Any]) -> dict:
    try:
        state = read()
    except UsageError:
        raise
    except pickle.UnpicklingError as error:
        raise refused(path, error) from error
    except Exception as error:  # what is no checkpoint may lead anywhere
        reason = (
            str(error) if isinstance(error, (OSError, RuntimeError, ValueError)) else "it is damaged, or no checkpoint"
        )
        raise UsageError(f"{path}: can't read this checkpoint: {' '.join(reason.split())[:200]}") from error
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UsageError(f"{path}: this is no fairseq checkpoint: it holds no model")
    return state
