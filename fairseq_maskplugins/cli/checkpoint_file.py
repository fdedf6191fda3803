"""Reading checkpoint files for the tools: one line where a file is missing, damaged, refused, or no checkpoint."""

import os
from typing import Any, Optional

from fairseq import checkpoint_utils
from omegaconf import OmegaConf

from ..checkpoints.reading import explain_reading, read_checkpoint
from ..checkpoints.weights import check_weights, require_finite, require_numbers
from ..compat import drop_foreign_options
from ..errors import UsageError
from ..files import require_file


def require_checkpoint(path: str, advice: str = "") -> None:
    """Stop where there is no such file; ``advice`` follows in the line."""
    require_file(path)
    if not os.path.isfile(path):
        raise UsageError(f"{path}: no such checkpoint{advice}")


def load_checkpoint_file(path: str) -> dict:
    """What a checkpoint file holds, as it was saved, on the CPU.

    Raises:
        UsageError: the file is missing, damaged, refused, no checkpoint, or its weights are no numbers.
    """
    require_checkpoint(path)
    with explain_reading(path), open(path, "rb") as file:
        return _check(path, read_checkpoint(file))


def load_upgraded_checkpoint(path: str, overrides: Optional[dict] = None) -> dict:
    """What a checkpoint file holds, as fairseq reads it: brought to the form of this version.

    Args:
        path: the file.
        overrides: options that count in place of the checkpoint's.

    Raises:
        UsageError: the file is missing, damaged, refused, no checkpoint, or its weights are no numbers.
    """
    require_checkpoint(path)
    # asked here, because fairseq would name other files: a missing shard, say
    with explain_reading(path), open(path, "rb"):
        state = _check(path, checkpoint_utils.load_checkpoint_to_cpu(path, overrides))
    task = state["cfg"].get("task") if OmegaConf.is_dict(state.get("cfg")) else None
    if OmegaConf.is_dict(task):
        drop_foreign_options(task)
    return state


def _check(path: str, state: Any) -> dict:
    check_weights(path, state)
    for part in ("model", "criterion"):
        tensors = state.get(part) or {}
        require_numbers(path, tensors)
        require_finite(path, tensors)
    return state
