"""What a checkpoint says of the training beside weights: is it what a run can go on from? (torch, no fairseq)

Each function returns what is wrong, in words that follow the name of the file, or None.
"""

import math
from typing import Any, Dict, Mapping, NamedTuple, Optional

import torch

END = 2**31  # of epochs, batches and updates
ITERATOR = "; --reset-dataloader starts with the first epoch"
METERS = "; --reset-meters starts with fresh ones"
OPTIMIZER = "; --reset-optimizer starts with a fresh one, --finetune-from-model FILE takes the weights alone"
WEIGHTS = "; --finetune-from-model FILE takes the weights alone"
NO_HISTORY = "maskplugins_no_history"


class Uses(NamedTuple):
    """What of it a run goes on from."""

    optimizer: bool = True
    scheduler: bool = True
    meters: bool = True
    iterator: bool = True


def shown(value: Any) -> str:
    """A value in a message; of one that may be large, its type."""
    if isinstance(value, int) and not is_number(value):
        return f"a number of {value.bit_length()} bits"  # Python writes no long ones
    return repr(value)[:60] if isinstance(value, (str, int, float, type(None))) else f"a {type(value).__name__}"


def is_number(value: Any) -> bool:
    """Python's, numpy's, or a tensor of one."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and not value.is_complex()
    if isinstance(value, int):
        return abs(value) < 2**1023  # larger ones are no float
    return isinstance(value, float) or type(value).__module__ == "numpy" and value.dtype.kind in "biuf"


def is_finite(value: Any) -> bool:
    return is_number(value) and math.isfinite(float(value))


def _whole(table: Dict[str, Any], name: str, least: int, where: str) -> Optional[str]:
    value = table.get(name)
    if type(value) is int and least <= value < END:
        return None
    return (
        f"its {where}.{name} must be a whole number in [{least}, 2^31), got {shown(value) if name in table else 'none'}"
    )


def fill_history(state: Any) -> Any:
    """Give a checkpoint without a readable history of optimizers an empty one, which says so: weights can be used
    without it, and fairseq's reading fails."""
    if isinstance(state, dict) and "optimizer_history" in state:
        said = _check_entries(state["optimizer_history"])
        if said:
            entry = {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}
            state["optimizer_history"] = [{**entry, NO_HISTORY: said}]
    return state


def _check_entries(history: Any) -> Optional[str]:
    if not isinstance(history, list):
        return f"its optimizer_history must be a list of tables, got {shown(history)}"
    if not history:
        return "its optimizer_history is empty"
    if not all(isinstance(entry, dict) for entry in history):
        return "its optimizer_history must be a list of tables"
    last = history[-1]
    if "best_loss" not in last and not isinstance(last.get("lr_scheduler_state"), dict):
        return "its optimizer_history has no lr_scheduler_state"
    if "best_loss" not in last:
        said = _whole(last, "num_updates", 0, "optimizer_history")
        if said:
            return said
    names = [last.get(name) for name in ("criterion_name", "optimizer_name") if name in last]
    return None if all(type(name) is str for name in names) else "its optimizer_history has no names"


def check_scheduler(found: Any) -> Optional[str]:
    """The state of a learning-rate scheduler: numbers, in tables where there are several."""
    if found is None or is_number(found) and not (isinstance(found, float) and math.isnan(found)):
        return None
    if isinstance(found, str) or not isinstance(found, (dict, list, tuple)):
        return f"its learning-rate scheduler's state must be numbers, got {shown(found)}"
    parts = found.values() if isinstance(found, dict) else found
    return next(filter(None, map(check_scheduler, parts)), None)


def check_iterator(found: Any) -> Optional[str]:
    """Where in the data the training was."""
    if not isinstance(found, dict):
        return f"its train_iterator must be a table, got {shown(found)}"
    if found.get("epoch") == 0 and "version" not in found:
        return "it has no train_iterator"  # fairseq has made one up
    said = _whole(found, "epoch", 1, "train_iterator")
    for name, least in (("iterations_in_epoch", 0), ("version", 1)):
        if not said and name in found:
            said = _whole(found, name, least, "train_iterator")
    if not said and type(found.get("shuffle", True)) is not bool:
        said = f"its train_iterator.shuffle must be true or false, got {shown(found['shuffle'])}"
    return said


def check_meters(found: Any, kinds: Mapping[str, type]) -> Optional[str]:
    """Averages of the log: ``{group: [(priority, name, kind, {field: number})]}``.

    Args:
        found: what a checkpoint has.
        kinds: the classes that meters have, by name.
    """
    if not isinstance(found, dict):
        return f"its metrics must be a table, got {shown(found)}"
    for group, meters in found.items():
        if type(group) is not str or not isinstance(meters, list):
            return "its metrics must be lists by name"
        names = set()
        for meter in meters:
            if not isinstance(meter, (list, tuple)) or len(meter) != 4:
                return f"its metrics {group} are damaged"
            priority, name, kind, fields = meter
            plain = is_finite(priority) and type(name) is str and type(kind) is str and isinstance(fields, dict)
            if not plain or kind not in kinds or name in names:
                return f"its metrics {group} are damaged"
            names.add(name)
            for field, value in fields.items():
                collected = field == "tensor" and isinstance(value, torch.Tensor)  # values of a whole epoch
                if value is None or collected or (type(value) is int if field == "round" else is_number(value)):
                    continue
                return f"its metrics {group}.{name}.{field} must be a number, got {shown(value)}"
            try:
                kinds[kind]().load_state_dict(fields)
            except Exception:  # whatever fields that are missing lead to
                return f"its metrics {group}.{name} are damaged"
    return None


def check_optimizer(found: Any) -> Optional[str]:
    """The form of an optimizer's state; of several, by name, where there is no list of groups."""
    if not isinstance(found, dict):
        return f"its last_optimizer_state must be a table, got {shown(found)}"
    if "param_groups" not in found and found and all(isinstance(part, dict) for part in found.values()):
        if "state" not in found:
            return next(filter(None, map(check_optimizer, found.values())), None)
    groups, states = found.get("param_groups"), found.get("state")
    if not isinstance(groups, list) or not groups or not all(isinstance(group, dict) for group in groups):
        return "its optimizer state has no list of param_groups"
    if not all(isinstance(group.get("params"), list) for group in groups):
        return "its optimizer state has a group without parameters"
    if not isinstance(states, dict) or not all(isinstance(part, (dict, torch.Tensor)) for part in states.values()):
        return "its optimizer state has no table of states by parameter"
    scale = found.get("loss_scale", 1.0)
    if not is_finite(scale) or not float(scale) > 0:
        return f"its optimizer state's loss_scale must be a number above 0, got {shown(scale)}"
    return None


def check_training_state(state: Dict[str, Any], uses: Uses, kinds: Mapping[str, type]) -> Optional[str]:
    """Check what a run will go on from, and put what is unread in order, as fairseq looks at some of it all the same.

    Args:
        state: of a checkpoint, as fairseq reads it; changed in place.
        uses: what the run goes on from.
        kinds: the classes that meters have, by name.

    Returns:
        what is wrong and which option does without it, or None.
    """
    extra, history = state.get("extra_state"), state.get("optimizer_history")
    if not isinstance(extra, dict):
        return f"its extra_state must be a table, got {shown(extra)}{WEIGHTS}"
    missing = history[-1].pop(NO_HISTORY, None) if history else None
    if missing:
        history.clear()
    if uses.optimizer and state.get("last_optimizer_state") is not None:
        said = missing or uses.scheduler and check_scheduler(history[-1].get("lr_scheduler_state"))
        said = said or check_optimizer(state["last_optimizer_state"])
        if said:
            return said + OPTIMIZER
    said = check_iterator(extra.get("train_iterator"))
    if said and uses.iterator:
        return said + ITERATOR
    if said:
        extra["train_iterator"] = {"version": 2, "epoch": 1, "iterations_in_epoch": 0, "shuffle": True}
    iterator = extra["train_iterator"]
    # at the start of an epoch fairseq begins with fresh ones
    inside = iterator.get("version", 1) < 2 or iterator.get("iterations_in_epoch", 0) != 0
    if uses.meters and "metrics" in extra and inside:
        said = check_meters(extra["metrics"], kinds)
        if said:
            return said + METERS
    for name in ("best", "previous_training_time"):
        if name in extra and not (is_finite if name == "previous_training_time" else is_number)(extra[name]):
            if name == "best" and extra[name] is None:
                continue
            if uses.meters and uses.optimizer:
                return f"its extra_state.{name} must be a number, got {shown(extra[name])}{WEIGHTS}"
            del extra[name]
    return None
