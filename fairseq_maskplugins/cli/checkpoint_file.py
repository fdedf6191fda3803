"""Reading checkpoint files for the tools: one line where a file is missing, damaged, refused, or no checkpoint."""

import os
from typing import Any, Dict, Optional

import torch
from fairseq import checkpoint_utils

from ..checkpoints.reading import explain_reading, read_checkpoint
from ..errors import UsageError


def require_checkpoint(path: str, advice: str = "") -> None:
    """Stop where there is no such file; ``advice`` follows in the line."""
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
        return _check(path, checkpoint_utils.load_checkpoint_to_cpu(path, overrides))


def _check(path: str, state: Any) -> dict:
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UsageError(f"{path}: this is no fairseq checkpoint: it holds no model")
    for part in ("model", "criterion"):
        tensors = state.get(part)
        if tensors is None:
            continue
        if not isinstance(tensors, dict) or not all(type(name) is str for name in tensors):
            raise UsageError(f"{path}: this is no fairseq checkpoint: its {part} is no table of tensors by name")
        for name, tensor in tensors.items():
            if not isinstance(tensor, torch.Tensor):
                raise UsageError(f"{path}: this is no fairseq checkpoint: {name} is no tensor")
        require_finite(path, tensors)
    return state


def require_finite(path: str, tensors: Dict[str, torch.Tensor]) -> None:
    """Refuse weights that are NaN or infinite: whatever is computed with them is NaN too.

    Raises:
        UsageError: names the first such tensor, and says how many there are.
    """
    wrong = [name for name, t in tensors.items() if t.is_floating_point() and not bool(torch.isfinite(t).all())]
    if wrong:
        raise UsageError(
            f"{path}: {wrong[0]} holds NaN or infinite values ({len(wrong)} of {len(tensors)} tensors do): the training "
            "diverged, take an earlier checkpoint"
        )
