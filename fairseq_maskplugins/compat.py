"""Everything that depends on which Python, fairseq or torch is running."""

import importlib.util
import os
import re
import sys
from importlib import metadata
from typing import Any, List, Optional, Sequence, Tuple

from .errors import UsageError, one_line

SUPPORTED = (
    "supported are fairseq 0.12.2 on Python 3.10, and fairseq-fixed 0.12.3.1 (a fork of fairseq that supports newer "
    "Pythons) on Python 3.11 to 3.13, each with torch 2.7 or newer"
)


def version_tuple(version: str) -> Tuple[int, ...]:
    """``"2.13.0+cpu"`` to ``(2, 13, 0)``."""
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def check_versions(
    python: Tuple[int, int], fairseq: Optional[str], fairseq_fixed: Optional[str], torch: Optional[str]
) -> Optional[str]:
    """Describe an unsupported combination of versions; None for a supported one.

    Args:
        python: major and minor version.
        fairseq, fairseq_fixed, torch: versions of the installed distributions, or None.
    """
    here = f"Python {python[0]}.{python[1]}"
    if not (3, 10) <= python <= (3, 13):
        return f"{here} is not supported: {SUPPORTED}"
    if torch is None:
        return f"torch is not installed: {SUPPORTED}"
    if version_tuple(torch) < (2, 7):
        return f"torch {torch} is too old: {SUPPORTED}"
    if fairseq is None and fairseq_fixed is None:
        return f"neither fairseq nor fairseq-fixed is installed: {SUPPORTED}"
    if fairseq_fixed is None and not (0, 12, 2) <= version_tuple(fairseq) < (0, 13):
        return f"fairseq {fairseq} is not supported: {SUPPORTED}"
    if fairseq_fixed is None and python >= (3, 11):
        return f"fairseq {fairseq} does not import on {here}, install fairseq-fixed instead: {SUPPORTED}"
    return None


def installed_version(name: str) -> Optional[str]:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def require_supported_versions() -> None:
    """Stop, naming the combination, where it is not supported."""
    problem = check_versions(sys.version_info[:2], *map(installed_version, ("fairseq", "fairseq-fixed", "torch")))
    if problem:
        raise UsageError(problem)


def require_library(name: str, extra: str) -> None:
    """Stop where a library that a tool needs is not installed, naming the extra that brings it."""
    if importlib.util.find_spec(name) is None:
        raise UsageError(f"{name} is not installed: pip install 'fairseq_maskplugins[{extra}]'")


def complete_batches(indices: Sequence[int], batches: Sequence[Sequence[int]]) -> List[Sequence[int]]:
    """Add the batch that fairseq-fixed 0.12.3.1 leaves out.

    Its ``batch_by_size`` drops the last sequences if they are fewer than ``--required-batch-size-multiple``; upstream makes
    a batch of them. Elsewhere this changes nothing.
    """
    batches = list(batches)
    left = len(indices) - sum(map(len, batches))
    return batches + [indices[len(indices) - left :]] if left else batches


def release_workers(epoch_iterator: Any) -> None:
    """Release the data workers of an epoch that is over; an iterator that is used again starts new ones.

    fairseq keeps them for the next epoch of the same data. Where every epoch reads another shard, each would leave its
    workers, queues and batches behind until the garbage collector breaks fairseq's reference cycles.
    """
    current = epoch_iterator._cur_epoch_itr
    if current is not None and not current.has_next():
        current._itr = iter(())
        epoch_iterator.dataloader = None


# options of fairseq-fixed's masked_lm for data2vec, with the values that mean "unused"
ONLY_IN_FIXED = {"include_index": True, "skip_masking": False, "d2v2_multi": False}


def drop_foreign_options(state: Any) -> None:
    """Drop task options that this fairseq does not know from a checkpoint, if they have their default value."""
    from fairseq.tasks.masked_lm import MaskedLMConfig
    from omegaconf import OmegaConf, open_dict

    task = state["cfg"].get("task") if OmegaConf.is_dict(state.get("cfg")) else None
    if not OmegaConf.is_dict(task):
        return
    with open_dict(task):
        for name, usual in ONLY_IN_FIXED.items():
            if name not in MaskedLMConfig.__dataclass_fields__ and name in task and task[name] in (usual, False):
                del task[name]


def load_dictionary(path: str, advice: str = "") -> Any:
    """Load ``dict.txt``; ``advice`` follows in the message if it is missing. fairseq itself raises bare exceptions."""
    from fairseq.data import Dictionary

    if not os.path.isfile(path):
        raise UsageError(f"{path}: no such file{advice and '; '}{advice}")
    try:
        return Dictionary.load(path)
    except Exception as error:
        raise UsageError(f"{path}: can't read the dictionary: {one_line(error, 197) or type(error).__name__}") from None


def disable_inference_path(encoder: Any) -> None:
    """Keep an encoder's layers off the fused inference path of fairseq 0.12.2, which wants its input batch first.

    fairseq 0.12.2 takes it in layers that were loaded and never trained; fairseq-fixed has no such path.
    """
    for layer in encoder.layers.children():
        if getattr(layer, "can_use_fastpath", False):
            layer.can_use_fastpath = False


COPIES = [f"{part}_{kind}" for part in ("in_proj", "out_proj", "fc1", "fc2") for kind in ("weight", "bias")]
_COPIES_OF_LAYERS = re.compile(rf"\blayers\.\d+\.({'|'.join(COPIES)})$")


def is_inference_copy(name: str) -> bool:
    """Whether a parameter is a copy of weights that layers of fairseq 0.12.2 keep for their fused inference path: no loss
    reaches it, and it is made anew when a checkpoint is loaded."""
    return _COPIES_OF_LAYERS.search(name) is not None


def drop_inference_copies(tensors: Any) -> None:
    """Drop fairseq 0.12.2's copies from a checkpoint's weights if this fairseq's layers have none."""
    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

    if COPIES[0] not in TransformerEncoderLayerBase.__init__.__code__.co_names:
        for name in [name for name in tensors if is_inference_copy(name)]:
            del tensors[name]


def spare_inference_copies(model: Any) -> None:
    """Tell torch's ``DistributedDataParallel`` (``--ddp-backend pytorch_ddp``) to leave fairseq 0.12.2's copies alone.

    No loss reaches them, so it would stop at the second update. fairseq-fixed has no such copies.
    """
    from torch.nn.parallel import DistributedDataParallel

    spared = [name for name, _ in model.named_parameters() if is_inference_copy(name)]
    if spared:
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, spared)


def data_parallel_rank() -> int:
    """This process's rank among those that see different data; 0 where nothing is distributed."""
    import torch
    from fairseq.distributed import utils

    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return 0
    return utils.get_data_parallel_rank()


def has_fused_adam(device: Any) -> bool:
    """Whether torch has a fused Adam for a device."""
    return device.type in ("cuda", "cpu")
