"""fairseq's own reading of checkpoints under our ``--user-dir``: guarded, and one line where one can't be loaded."""

import argparse
import collections
import functools
import re
from typing import Any

import omegaconf
import torch
from fairseq import checkpoint_utils
from fairseq.distributed.utils import _TensorPlaceholder
from fairseq.trainer import Trainer
from omegaconf import base

from ..compat import loads_weights_only
from ..errors import UsageError
from .reading import explain_reading, know_in_checkpoints, read_checkpoint
from .rebuild import NUMPY


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
        _TensorPlaceholder,
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
        return read_checkpoint(file, map_location)


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
            return load(path, *args, **kwargs)

    checkpoint_utils.load_checkpoint_to_cpu = load_checkpoint_to_cpu


def explain_loading() -> None:
    """One line, not a traceback, where a checkpoint can't be loaded into this run.

    The trainer puts "please ensure that the architectures match" and a traceback around what a model of ours says; and it
    asserts where a checkpoint of another optimizer is resumed with ChildTuning, or the reverse.
    """
    load = Trainer.load_checkpoint
    if getattr(load, "explains", False):
        return

    @functools.wraps(load)
    def load_checkpoint(self: Any, filename: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return load(self, filename, *args, **kwargs)
        except AssertionError as error:
            names = re.match(r"Optimizer does not match.* (\w+) vs (\w+)$", str(error))
            if names is None or "ChildTuning" not in str(error):
                raise
            raise UsageError(
                f"{filename}: its optimizer state is of {names[1]}, and this run has {names[2]}; with --reset-optimizer it "
                "starts from the weights, with a fresh state, learning-rate schedule and count of updates"
            ) from None
        except Exception as error:
            if isinstance(error.__context__, UsageError):
                raise error.__context__ from None
            raise

    load_checkpoint.explains = True
    Trainer.load_checkpoint = load_checkpoint


protect_checkpoints()
explain_loading()
