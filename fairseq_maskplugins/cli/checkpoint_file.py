"""Reading checkpoint files for the tools: one line where a file is missing, damaged, refused, or no checkpoint."""

import os
import pickle
from typing import Any, Callable, Dict, Optional

import torch
from fairseq import checkpoint_utils

from ..compat import refused
from ..errors import UsageError


def require_checkpoint(path: str, advice: str = "") -> None:
    """Stop where there is no such file; ``advice`` follows in the line."""
    if not os.path.isfile(path):
        raise UsageError(f"{path}: no such checkpoint{advice}")


def load_checkpoint_file(path: str) -> dict:
    """What a checkpoint file holds, as it was saved, on the CPU.

    Raises:
        UsageError: the file is missing, damaged, holds what torch refuses to load, or its weights are no numbers.
    """
    return _read_checkpoint(path, lambda: torch.load(path, map_location="cpu"))


def load_upgraded_checkpoint(path: str, overrides: Optional[dict] = None) -> dict:
    """What a checkpoint file holds, as fairseq reads it: brought to the form of this version.

    Args:
        path: the file.
        overrides: options that count in place of the checkpoint's.

    Raises:
        UsageError: the file is missing, damaged, holds what torch refuses to load, or its weights are no numbers.
    """
    return _read_checkpoint(path, lambda: checkpoint_utils.load_checkpoint_to_cpu(path, overrides))


def _read_checkpoint(path: str, read: Callable[[], Any]) -> dict:
    require_checkpoint(path)
    try:
        state = read()
    except UsageError:
        raise
    except pickle.UnpicklingError as error:
        raise refused(path, error) from error
    except OSError as error:
        raise UsageError(f"{path}: can't read this checkpoint: {error.strerror or error}") from error
    except Exception as error:  # what is no checkpoint may lead anywhere
        reason = f" ({' '.join(str(error).split())[:200]})" if isinstance(error, (RuntimeError, ValueError)) else ""
        raise UsageError(f"{path}: can't read this checkpoint: it is damaged, or no checkpoint{reason}") from error
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UsageError(f"{path}: this is no fairseq checkpoint: it holds no model")
    require_finite(path, state["model"])
    require_finite(path, state.get("criterion") or {})
    return state


def require_finite(path: str, tensors: Dict[str, torch.Tensor]) -> None:
    """Refuse weights that are NaN or infinite: whatever is computed with them is NaN too.

    Raises:
        UsageError: names the first such tensor, and says how many there are.
    """
    wrong = [
        name
        for name, t in tensors.items()
        if torch.is_tensor(t) and t.is_floating_point() and not bool(torch.isfinite(t).all())
    ]
    if wrong:
        raise UsageError(
            f"{path}: {wrong[0]} holds NaN or infinite values ({len(wrong)} of {len(tensors)} tensors do): the training "
            "diverged, take an earlier checkpoint"
        )
