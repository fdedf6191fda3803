"""The weights in a checkpoint: are they weights, numbers, and those of this model? (torch, no fairseq)"""

import re
from typing import Any, Dict, List

import torch

from ..errors import UsageError

NUMBERS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_weights(path: str, state: Any) -> None:
    """Stop where a checkpoint holds no tables of tensors by name.

    Raises:
        UsageError: names the file and the part.
    """
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


def require_numbers(path: str, tensors: Dict[str, torch.Tensor]) -> None:
    """Refuse weights that are integers or the like, as tools that quantise models write them: without their scales they
    are not the model's.

    Raises:
        UsageError: names the first such tensor, and its type.
    """
    for name, tensor in tensors.items():
        if name.endswith((".weight", ".bias")) and tensor.dtype not in NUMBERS:
            kind = str(tensor.dtype).replace("torch.", "")
            raise UsageError(
                f"{path}: {name} must hold floating-point numbers, 16 bits or more, got {kind}: give the checkpoint of training"
            )


def require_finite(path: str, tensors: Dict[str, torch.Tensor]) -> None:
    """Refuse weights that are NaN or infinite: whatever is computed with them is NaN too.

    Raises:
        UsageError: names the first such tensor, and says how many there are.
    """
    wrong = [name for name, t in tensors.items() if t.is_floating_point() and not bool(torch.isfinite(t).all())]
    if wrong:
        half = ", or the weights are too large for half precision" if tensors[wrong[0]].dtype == torch.float16 else ""
        raise UsageError(
            f"{path}: {wrong[0]} holds NaN or infinite values ({len(wrong)} of {len(tensors)} tensors do): the training "
            f"diverged{half}, take an earlier checkpoint"
        )


def list_mismatches(message: str) -> List[str]:
    """What torch's ``load_state_dict`` has to say, an entry for each tensor; empty where it is another message."""
    found = []
    for kind, said in (("Missing", "is missing"), ("Unexpected", "has no place in this model")):
        for names in re.findall(rf"{kind} key\(s\) in state_dict: (.*?)\. *(?:\n|$)", message):
            found += [f"{name} {said}" for name in re.findall(r'"([^"]*)"', names)]
    sizes = re.findall(
        r"size mismatch for (.+?): copying a param with shape (?:torch\.Size\()?(\[[\d, ]*\])\)? from checkpoint, "
        r"the shape in current model is (?:torch\.Size\()?(\[[\d, ]*\])",
        message,
    )
    return found + [f"{name} has the shape {old} there and {new} here" for name, old, new in sizes]


def describe_mismatch(error: Any) -> str:
    """The first mismatch and the number of others, or what else was said."""
    found = list_mismatches(str(error))
    if found:
        return found[0] + (f" (and {len(found) - 1} more)" if len(found) > 1 else "")
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


# of the device, of other ranks, of the system: no checkpoint's
_FOREIGN = re.compile(r"CUDA|cuDNN|NCCL|out of memory|can't allocate|[Gg]loo|[Cc]onnection|[Tt]imed out")


def is_foreign(error: BaseException) -> bool:
    """Whether an error while a checkpoint is loaded says nothing of the checkpoint."""
    known = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
    return not isinstance(error, known) or bool(_FOREIGN.search(str(error)))
