"""Does a loaded optimizer's state fit its parameters? (torch, no fairseq)"""

import math
from typing import Any, Dict, Optional, Sequence

import torch

from .training_state import is_finite, shown

# tensors of the parameter's shape, by the class of the optimizer; what is in brackets may be missing
MOMENTS: Dict[str, Sequence[str]] = {
    "Adam": ("exp_avg", "exp_avg_sq"),
    "AdamW": ("exp_avg", "exp_avg_sq"),
    "ChildAdam": ("exp_avg", "exp_avg_sq"),
    "FusedAdamV1": ("exp_avg", "exp_avg_sq"),
    "Adamax": ("exp_avg", "exp_inf"),
    "Adagrad": ("sum",),
    "Adadelta": ("square_avg", "acc_delta"),
    "SGD": ("[momentum_buffer]",),
    "NAG": ("[momentum_buffer]",),
    "ChildSGD": ("[momentum_buffer]",),
}
KNOWN = sorted({name.strip("[]") for names in MOMENTS.values() for name in names} | {"max_exp_avg_sq"})
# infinite, they make the weights NaN; the others are sums of squares or magnitudes
FIRST = ("exp_avg", "momentum_buffer")
LARGEST = 3.4e38  # of single precision
COUNTED = ("Adam", "AdamW", "ChildAdam", "Adamax", "Adagrad", "Adadelta")  # these need their number of steps


def count_parameters(state: Any) -> Sequence[int]:
    """The number of parameters in each group of a state, or of an optimizer."""
    groups = state["param_groups"] if isinstance(state, dict) else state.param_groups
    return [len(group["params"]) for group in groups]


def _check_group(group: Dict[str, Any], defaults: Dict[str, Any]) -> Optional[str]:
    """The options of a group come from the checkpoint: they must be of the kind that the optimizer's own are."""
    for name, own in defaults.items():
        if name not in group and type(own) in (int, float, tuple, list):  # others have come with newer versions
            return f"its group has no {name}"
        value = group.get(name)
        several = isinstance(own, (list, tuple))
        if several and not (isinstance(value, (list, tuple)) and len(value) == len(own) and all(map(is_finite, value))):
            return f"its group's {name} must be {len(own)} numbers, got {shown(value)}"
        if name == "betas" and not all(0 <= float(beta) < 1 for beta in value):
            return f"its group's betas must lie in [0, 1), got {shown(str(value))}"
        if type(own) in (int, float) and not (is_finite(value) and abs(float(value)) <= LARGEST):
            return f"its group's {name} must be a number of single precision, got {shown(value)}"
        if type(own) is bool and name in group and type(value) is not bool:
            return f"its group's {name} must be true or false, got {shown(value)}"
    return None


def check_loaded(optimizer: torch.optim.Optimizer) -> Optional[str]:
    """What of a state that was loaded the optimizer would stumble over at its next step, or None. States of optimizers
    that are not known here are left to them."""
    kinds = [kind.__name__ for kind in type(optimizer).__mro__]
    kind = next((name for name in kinds if name in MOMENTS), None)
    if kind is None or hasattr(optimizer, "optimizers"):
        return None
    number = 0
    for group in optimizer.param_groups:
        said = _check_group(group, optimizer.defaults)
        if said:
            return said
        moments = (*MOMENTS[kind], *(("max_exp_avg_sq",) if group.get("amsgrad") else ()))
        for parameter in group["params"]:
            said = _check_parameter(parameter, optimizer.state.get(parameter) or {}, kind in COUNTED, moments)
            if said:
                return f"parameter {number}: {said}"
            number += 1
    return None


def check_saved(found: Any) -> Optional[str]:
    """What of a saved state can't be seen once it is loaded, as torch makes floating-point numbers of it; or None."""
    table = found.get("state") if isinstance(found, dict) else None
    for number, entry in table.items() if isinstance(table, dict) else ():
        for name in KNOWN if isinstance(entry, dict) else ():
            said = _check_kind(name, entry.get(name))
            if said:
                return f"parameter {shown(number)}: {said}"
    return None


def _check_kind(name: str, value: Any) -> Optional[str]:
    if isinstance(value, torch.Tensor) and not value.is_floating_point():
        return f"its {name} must hold floating-point numbers, got {str(value.dtype).replace('torch.', '')}"
    return None


def _check_parameter(parameter: torch.Tensor, state: Any, counted: bool, moments: Sequence[str]) -> Optional[str]:
    if not isinstance(state, dict):
        return f"its state must be a table, got {shown(state)}"
    if not state:
        return None
    if counted:
        step = state.get("step")
        several = isinstance(step, torch.Tensor) and step.dim() > 0
        if several or not is_finite(step) or float(step) < 0 or math.floor(float(step)) != float(step):
            return f"its step must be a whole number, got {shown(step)}"
    for bracketed in moments:
        name = bracketed.strip("[]")
        value = state.get(name)
        if value is None and name != bracketed:
            continue
        if not isinstance(value, torch.Tensor):
            return f"its {name} must be a tensor, got {shown(value)}"
        if value.shape != parameter.shape:
            return f"its {name} has the shape {list(value.shape)}, the parameter {list(parameter.shape)}"
        said = _check_kind(name, value)
        if said:
            return said
        if bool(torch.isnan(value).any()) or name in FIRST and bool(torch.isinf(value).any()):
            return f"its {name} holds NaN or infinite values"
        if name not in FIRST and bool((value < 0).any()):
            return f"its {name} holds values below 0"
    return None
