"""Read fairseq checkpoints safely: torch's weights-only loading, with an allow-list of fairseq's classes."""

import argparse
import ast
import collections
import os
import pickle
import re
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import numpy as np
import torch

from .compat import drop_foreign_options, drop_inference_copies
from .errors import CheckpointError, UsageError, one_line

# options whose text fairseq's models and tasks hand to eval()
EVALUATED = frozenset(
    (
        "adaptive_input_cutoff adaptive_softmax_cutoff character_filters decoder_layers encoder_layers "
        "decoder_xformers_att_config encoder_xformers_att_config xformers_att_config left_pad_source left_pad_target "
        "pipeline_balance pipeline_devices pipeline_encoder_balance pipeline_encoder_devices pipeline_decoder_balance "
        "pipeline_decoder_devices adam_betas adamax_betas adafactor_eps lamb_betas"
    ).split()
)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def allow_in_checkpoints(*classes: Any) -> None:
    """Let checkpoints hold objects of more classes, for example a plug-in's own; loading them must not run code."""
    torch.serialization.add_safe_globals(list(classes))


def allow_fairseq_classes() -> None:
    """Allow the classes that fairseq's checkpoints hold besides tensors; none of them runs code when it is loaded.

    ``Namespace`` is in the checkpoints of models without dataclasses, RoBERTa among them; omegaconf nodes are in old
    checkpoints; numpy scalars come from meters; and rank 0 sends a placeholder for each tensor to the other ranks.
    """
    import omegaconf
    from fairseq.distributed import utils as distributed_utils
    from omegaconf import base

    nodes = [getattr(omegaconf.nodes, name) for name in dir(omegaconf.nodes) if name.endswith("Node")]
    configs = [omegaconf.DictConfig, omegaconf.ListConfig, base.Metadata, base.ContainerMetadata]
    plain = [argparse.Namespace, collections.OrderedDict, collections.defaultdict, dict, list, int]
    numbers = [np.dtype, *{type(np.dtype(code)) for code in "?bhilqBHILQefd"}]
    scalar = type(np.float64(0)).__reduce__(np.float64(0))[0]
    scalars = [(scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    allow_in_checkpoints(*plain, (Any, "typing.Any"), *configs, *nodes, *numbers, *scalars)
    allow_in_checkpoints(distributed_utils._TensorPlaceholder)


def require_checkpoint(path: str, advice: str = "") -> None:
    """Stop if there is no such file; ``advice`` follows in the message."""
    if not os.path.isfile(path):
        raise UsageError(f"{path}: no such checkpoint{advice}")


def read_checkpoint(path: str) -> Dict[str, Any]:
    """Load a fairseq checkpoint as it was saved, on the CPU.

    Raises:
        UsageError: the file is missing, truncated, not a fairseq checkpoint, holds code, or its weights are not finite.
    """
    allow_fairseq_classes()
    return _read(path, lambda: torch.load(path, map_location="cpu", weights_only=True))


def read_upgraded_checkpoint(path: str, overrides: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
    """Load a checkpoint as this fairseq version reads it, with ``overrides`` in place of its options; raises as above."""
    from fairseq import checkpoint_utils

    allow_fairseq_classes()
    state = _read(path, lambda: checkpoint_utils.load_checkpoint_to_cpu(path, overrides))
    drop_inference_copies(state["model"])
    drop_foreign_options(state)
    return state


def _read(path: str, load: Callable[[], Any]) -> Dict[str, Any]:
    require_checkpoint(path)
    try:
        state = load()
    except pickle.UnpicklingError as error:
        refused = re.search(r"GLOBAL (\S+) (?:whose|was not)", str(error))
        if refused:
            raise UsageError(
                f"{path}: refused to load this checkpoint: it holds {refused[1]}, which is no part of a fairseq "
                "checkpoint and could run code"
            ) from None
        raise UsageError(f"{path}: can't read this checkpoint: it is damaged, or not a checkpoint") from None
    except Exception as error:  # a file that is not a checkpoint may raise anything
        detail = one_line(str(error).split(". ")[0], 100) or type(error).__name__
        reason = getattr(error, "strerror", None) or f"it is damaged, or not a checkpoint ({detail})"
        raise UsageError(f"{path}: can't read this checkpoint: {reason}") from None
    try:
        check_weights(state)
        check_evaluated(state)
    except CheckpointError as error:
        raise error.at(path) from None
    return state


def check_weights(state: Any) -> None:
    """Require tables of finite floating-point tensors.

    Raises:
        CheckpointError: names the first tensor that is not.
    """
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise CheckpointError("not a fairseq checkpoint: it holds no model")
    for part in ("model", "criterion"):
        for name, tensor in (state.get(part) or {}).items():
            if not isinstance(tensor, torch.Tensor):
                raise CheckpointError(f"not a fairseq checkpoint: {name} is not a tensor")
            if name.endswith((".weight", ".bias")) and tensor.dtype not in FLOATS:
                kind = str(tensor.dtype).replace("torch.", "")
                raise CheckpointError(f"{name} must hold floating-point numbers, got {kind}: give the training checkpoint")
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise CheckpointError(f"{name} holds NaN or infinite values: the training diverged, take an earlier one")


def check_evaluated(state: Dict[str, Any]) -> None:
    """Refuse expressions in options that fairseq evaluates: only literals are allowed there.

    Raises:
        CheckpointError: names the option.
    """
    for name, value in _options(state.get("args"), state.get("cfg")):
        if name in EVALUATED and isinstance(value, (str, bytes)):
            try:
                ast.literal_eval(value.strip())
            except Exception:  # an expression, or no Python at all
                raise CheckpointError(f"its option {name} must be a literal, got {value!r}, which could run code") from None


def _options(*holders: Any) -> Iterator[Tuple[str, Any]]:
    """Names and values in nested options."""
    from omegaconf import OmegaConf

    for holder in holders:
        if OmegaConf.is_config(holder):
            holder = OmegaConf.to_container(holder, resolve=False)
        if isinstance(holder, argparse.Namespace):
            holder = vars(holder)
        for name, value in holder.items() if isinstance(holder, dict) else ():
            yield name, value
            yield from _options(value)
