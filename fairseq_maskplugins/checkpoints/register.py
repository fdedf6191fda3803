"""fairseq's own reading of checkpoints under our ``--user-dir``: guarded, and one line where one can't be loaded."""

import argparse
import collections
import contextlib
import functools
import re
from typing import Any, Callable, Dict, Iterator, Optional, Sequence

import omegaconf
import torch
from fairseq import checkpoint_utils, utils
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import meters
from fairseq.trainer import Trainer
from omegaconf import base

from ..compat import drop_inference_copies, loads_weights_only
from ..errors import CheckpointError, UsageError
from .optimizer_state import check_loaded, check_saved, count_parameters
from .reading import explain_reading, know_in_checkpoints, read_checkpoint
from .rebuild import NUMPY
from .training_state import ITERATOR, OPTIMIZER, Uses, check_training_state, fill_history
from .weights import check_weights, describe_mismatch, is_foreign, list_mismatches, require_finite, require_numbers

REFUSED = "maskplugins_refused"  # in the place of a checkpoint, to the other ranks
METERS = {
    kind: found
    for kind, found in vars(meters).items()
    if isinstance(found, type) and issubclass(found, meters.Meter) and found is not meters.Meter
}


def checkpoint_classes() -> list:
    """The classes, outside torch's own safe set, that fairseq's checkpoints really hold.

    ``Namespace`` is in every checkpoint of a model that fairseq has not moved to dataclasses (RoBERTa among them),
    omegaconf nodes in the configurations of checkpoints written by older versions; and where rank 0 sends a checkpoint to
    the other ranks, a placeholder stands for each tensor. None of them runs code when it is loaded. The numpy scalars of
    the meters are in ``rebuild.py``.
    """
    nodes = [
        omegaconf.DictConfig,
        omegaconf.ListConfig,
        base.Metadata,
        base.ContainerMetadata,
        *(getattr(omegaconf.nodes, name) for name in dir(omegaconf.nodes) if name.endswith("Node")),
    ]
    plain = [
        argparse.Namespace,
        collections.OrderedDict,
        collections.defaultdict,
        dict,
        list,
        int,
        Any,
        distributed_utils._TensorPlaceholder,
    ]
    return plain + nodes


class _GuardedTorch:
    """torch, with :func:`read_checkpoint` in the place of ``load``."""

    def __init__(self, torch: Any):
        self._torch = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    @staticmethod
    def load(file: Any, map_location: Any = None) -> Any:
        return fill_history(read_checkpoint(file, map_location))


def protect_checkpoints() -> None:
    """Let fairseq read its own checkpoints, and nothing that could run code; name what is refused, in one line.

    Where torch loads weights only (2.7 and later) that stays on, with an allow-list; older versions get an unpickler of
    ours with the same list.
    """
    if isinstance(checkpoint_utils.torch, _GuardedTorch):
        return
    know_in_checkpoints(*checkpoint_classes())
    if loads_weights_only():
        torch.serialization.add_safe_globals([(found, ".".join(name)) for name, found in NUMPY.items()])
    checkpoint_utils.torch = _GuardedTorch(torch)
    load = checkpoint_utils.load_checkpoint_to_cpu

    @functools.wraps(load)
    def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> Any:
        with explain_reading(path):
            state = load(path, *args, **kwargs)
        drop_inference_copies(state.get("model") if isinstance(state, dict) else None)
        return state

    checkpoint_utils.load_checkpoint_to_cpu = load_checkpoint_to_cpu


@contextlib.contextmanager
def _checked_on_all_ranks(trainer: Any, check: Callable[[Dict[str, Any]], None]) -> Iterator[None]:
    """Have what is read checked, and what is wrong said on every rank: rank 0 alone reads, and others wait for it."""
    read, send = checkpoint_utils.load_checkpoint_to_cpu, distributed_utils.broadcast_object

    def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> Any:
        try:
            state = read(path, *args, **kwargs)
            check(state)
            return state
        except UsageError as error:
            if trainer.data_parallel_world_size == 1 or kwargs.get("load_on_all_ranks"):
                raise
            return {REFUSED: str(error)}

    def broadcast_object(*args: Any, **kwargs: Any) -> Any:
        found = send(*args, **kwargs)
        if isinstance(found, dict) and REFUSED in found:
            raise UsageError(found[REFUSED])
        return found

    checkpoint_utils.load_checkpoint_to_cpu, distributed_utils.broadcast_object = (
        load_checkpoint_to_cpu,
        broadcast_object,
    )
    try:
        yield
    finally:
        checkpoint_utils.load_checkpoint_to_cpu, distributed_utils.broadcast_object = read, send


def _explain(trainer: Any, saved: Sequence[int], error: Exception) -> Optional[str]:
    """What an error says of a checkpoint; None for one that is not the checkpoint's.

    Args:
        trainer: fairseq's.
        saved: the number of parameters in each group of its optimizer state.
        error: what loading it led to.
    """
    if str(error).startswith("Cannot load model parameters from checkpoint"):
        cause = error.__context__
        if cause is None or is_foreign(cause):
            return None
        criterion = type(trainer.get_criterion()).__name__
        part = "criterion" if f"state_dict for {criterion}:" in str(cause) else "model"
        return (
            f"its weights don't fit this {part}: {describe_mismatch(cause)}; the options of the model and the criterion, and "
            "the dictionary, must be those of its training"
        )
    names = re.match(r"(Optimizer|Criterion) does not match.* (\w+) vs (\w+)$", str(error))
    if names:
        return (
            f"its optimizer state is of {names[2]}, and this run has {names[3]}; with --reset-optimizer it starts from the "
            "weights, with a fresh state, learning-rate schedule and count of updates"
        )
    if is_foreign(error) or isinstance(error, RuntimeError) and not list_mismatches(str(error)):
        return None
    if "parameter group" in str(error):
        ours = " + ".join(map(str, count_parameters(trainer.optimizer.optimizer)))
        theirs = " + ".join(map(str, saved)) or "other"  # rank 0 alone has read it
        return f"its optimizer state doesn't fit this run: it is of {theirs} parameters, and this run has {ours}{OPTIMIZER}"
    return f"its training state doesn't fit this run: {describe_mismatch(error)}{OPTIMIZER}"


def _check_loaded(trainer: Any, path: str) -> None:
    """Of what was loaded, the weights must be numbers, and the optimizer's state of its parameters."""
    weights = dict(trainer._model.named_parameters())
    if utils.has_parameters(trainer._criterion):
        weights.update(trainer._criterion.named_parameters())
    require_finite(path, weights)
    optimizer = getattr(trainer._optimizer, "optimizer", None)
    said = check_loaded(optimizer) if isinstance(optimizer, torch.optim.Optimizer) else None
    if said:
        raise UsageError(f"{path}: its optimizer state doesn't fit this run: {said}{OPTIMIZER}")


def explain_loading() -> None:
    """One line, not a traceback, where a checkpoint can't be loaded into this run or gone on from."""
    load, restore = Trainer.load_checkpoint, checkpoint_utils.load_checkpoint
    if getattr(load, "explains", False):
        return

    @functools.wraps(load)
    def load_checkpoint(
        self: Any,
        filename: str,
        reset_optimizer: bool = False,
        reset_lr_scheduler: bool = False,
        optimizer_overrides: Any = None,
        reset_meters: bool = False,
    ) -> Any:
        cfg, saved = self.cfg.checkpoint, []
        weights_alone = filename == cfg.finetune_from_model
        uses = Uses(
            not reset_optimizer, not reset_lr_scheduler, not reset_meters, not (weights_alone or cfg.reset_dataloader)
        )

        def check(state: Any) -> None:
            check_weights(filename, state)
            for part in ("model", "criterion"):
                require_numbers(filename, state.get(part) or {})
            said = check_training_state(state, uses, METERS)
            if said:
                raise UsageError(f"{filename}: {said}")
            optimizer = state.get("last_optimizer_state")
            said = check_saved(optimizer) if uses.optimizer else None
            if said:
                raise UsageError(f"{filename}: its optimizer state doesn't fit this run: {said}{OPTIMIZER}")
            saved.extend(count_parameters(optimizer) if uses.optimizer and "param_groups" in (optimizer or ()) else ())

        try:
            with _checked_on_all_ranks(self, check):
                found = load(self, filename, reset_optimizer, reset_lr_scheduler, optimizer_overrides, reset_meters)
        except UsageError:
            raise
        except Exception as error:
            if isinstance(error.__context__, CheckpointError):
                raise error.__context__.at(filename) from None
            if isinstance(error.__context__, UsageError):
                raise error.__context__ from None
            said = _explain(self, saved, error)
            if said is None:
                raise
            raise UsageError(f"{filename}: {said}") from None
        if found is not None:
            _check_loaded(self, filename)
        self.maskplugins_restored = filename
        return found

    @functools.wraps(restore)
    def load_checkpoint_and_data(cfg: Any, trainer: Any, **kwargs: Any) -> Any:
        try:
            return restore(cfg, trainer, **kwargs)
        except RuntimeError as error:
            if not str(error).startswith("Cannot resume training due to dataloader mismatch"):
                raise
            raise UsageError(
                f"{trainer.maskplugins_restored}: it was saved further into its epoch than this run's epochs reach: its data "
                f"or its batches were others{ITERATOR}"
            ) from None

    load_checkpoint.explains = True
    Trainer.load_checkpoint, checkpoint_utils.load_checkpoint = load_checkpoint, load_checkpoint_and_data


protect_checkpoints()
explain_loading()
