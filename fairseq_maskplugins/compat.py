"""Everything that depends on which Python, fairseq or torch is running."""

import functools
import os
import re
import sys
from typing import Any, List, Optional, Sequence, Tuple

from .errors import UsageError

try:
    from importlib import metadata
except ImportError:  # Python 3.7, named by check_versions below
    metadata = None

SUPPORTED = (
    "supported are fairseq 0.12.2 on Python 3.9 and 3.10, and fairseq-fixed 0.12.3.1 (the same package, mended for new "
    "Pythons) on Python 3.11 to 3.13, each with torch 1.12 or newer"
)


def version_tuple(version: str) -> Tuple[int, ...]:
    """``"2.13.0+cpu"`` to ``(2, 13, 0)``."""
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def check_versions(
    python: Tuple[int, int], fairseq: Optional[str], fairseq_fixed: Optional[str], torch: Optional[str]
) -> Optional[str]:
    """Say what is wrong with a combination of versions, or None.

    Args:
        python: major and minor version.
        fairseq, fairseq_fixed, torch: versions of the installed distributions, or None.
    """
    here = f"Python {python[0]}.{python[1]}"
    if not (3, 9) <= python <= (3, 13):
        return f"{here} is not supported: {SUPPORTED}"
    if torch is None:
        return f"torch is not installed: {SUPPORTED}"
    if version_tuple(torch) < (1, 12):
        return f"torch {torch} is too old: {SUPPORTED}"
    if fairseq is None and fairseq_fixed is None:
        return f"neither fairseq nor fairseq-fixed is installed: {SUPPORTED}"
    if fairseq_fixed is None and not (0, 12, 2) <= version_tuple(fairseq) < (0, 13):
        return f"fairseq {fairseq} is not supported: {SUPPORTED}"
    if fairseq_fixed is None and python >= (3, 11):
        return f"fairseq {fairseq} does not import on {here}, install fairseq-fixed in its place: {SUPPORTED}"
    return None


def installed_version(name: str) -> Optional[str]:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def require_supported_versions() -> None:
    """Stop, naming the combination, where this one can't work."""
    installed = (
        {} if metadata is None else {name: installed_version(name) for name in ("fairseq", "fairseq-fixed", "torch")}
    )
    problem = check_versions(
        sys.version_info[:2], installed.get("fairseq"), installed.get("fairseq-fixed"), installed.get("torch")
    )
    if problem:
        raise UsageError(problem)


def complete_batches(indices: Sequence[int], batches: Sequence[Sequence[int]]) -> List[Sequence[int]]:
    """Add the batch that fairseq-fixed 0.12.3.1 leaves out.

    Its ``batch_by_size`` drops the last rows where their number is below ``--required-batch-size-multiple``; upstream
    makes a batch of them. Elsewhere this changes nothing.
    """
    batches = list(batches)
    left = len(indices) - sum(map(len, batches))
    return batches + [indices[len(indices) - left :]] if left else batches


def release_workers(epoch_iterator: Any) -> None:
    """Let go of the data workers of an epoch that is over.

    fairseq keeps them for the next epoch of the same data, and its iterator is part of reference cycles: where every
    epoch has data of its own, each leaves its workers, their queues and its batches behind, until Python's collector
    happens to look at its oldest objects. An iterator that is used again after this starts new workers.
    """
    current = epoch_iterator._cur_epoch_itr
    if current is not None and not current.has_next():
        current._itr = iter(())
        epoch_iterator.dataloader = None


# of fairseq-fixed's masked_lm, for data2vec, and what they are where it is not trained
ONLY_IN_FIXED = {"include_index": True, "skip_masking": False, "d2v2_multi": False}


def drop_foreign_options(task: Any) -> None:
    """Take options that this fairseq's task does not have, and that change nothing, out of a checkpoint's configuration."""
    from fairseq.tasks.masked_lm import MaskedLMConfig
    from omegaconf import open_dict

    with open_dict(task):
        for name, usual in ONLY_IN_FIXED.items():
            if name not in MaskedLMConfig.__dataclass_fields__ and name in task and task[name] in (usual, False):
                del task[name]


LONGEST_SYMBOL = 10_000


def load_dictionary(path: str, advice: str = "") -> Any:
    """fairseq's dictionary of a file.

    Args:
        path: of ``dict.txt``.
        advice: what to do where there is no such file.

    Raises:
        UsageError: it is missing, or fairseq can't read it: it raises whatever is at hand, also plain exceptions.
    """
    from fairseq.data import Dictionary

    if os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(f"{path}: can't read the dictionary: it is no file")
    try:
        dictionary = Dictionary.load(path)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file{advice and '; '}{advice}") from None
    except Exception as error:
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise UsageError(f"{path}: can't read the dictionary: {said}") from None
    for symbol, count in zip(dictionary.symbols, dictionary.count):
        if not 0 <= count < 2**63 or len(symbol) > LONGEST_SYMBOL:
            raise UsageError(
                f"{path}: can't read the dictionary: an entry must have a count in [0, 2^63) and at most {LONGEST_SYMBOL} "
                f"characters, got {symbol[:40]!r} with {str(count)[:40]}"
            )
    return dictionary


def loads_weights_only() -> bool:
    """Whether ``torch.load`` of this version unpickles weights only where nothing else is said, and can be told under
    which name a pickle may call for what: since 2.7."""
    import torch

    return version_tuple(torch.__version__) >= (2, 7)


def typed_storage() -> type:
    """The class of the data that tensors are rebuilt from, by its name of this version of torch."""
    import torch

    return getattr(torch.storage, "TypedStorage", None) or torch.storage._TypedStorage


def storage_of(tensor: Any) -> Tuple[int, int]:
    """Address and bytes of the memory that a tensor is a view of."""
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    return storage.data_ptr(), storage.nbytes()


def disable_inference_path(encoder: Any) -> None:
    """Keep the layers of an encoder off upstream's fused inference path, which wants its input batch first.

    fairseq 0.12.2 takes it in layers that were loaded and never trained; fairseq-fixed has no such path.
    """
    for layer in encoder.layers.children():
        if getattr(layer, "can_use_fastpath", False):
            layer.can_use_fastpath = False


def quieten_half_read_data() -> None:
    """Where a memory-mapped data set can't be read, fairseq stumbles over what it had not opened yet, and says so after
    the line that counts."""
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    close = MMapIndexedDataset.__del__
    if getattr(close, "is_quiet", False):
        return

    def __del__(self: Any) -> None:
        if hasattr(self, "_bin_buffer_mmap"):
            close(self)

    __del__.is_quiet = True
    MMapIndexedDataset.__del__ = __del__


COPIES = [f"{part}_{kind}" for part in ("in_proj", "out_proj", "fc1", "fc2") for kind in ("weight", "bias")]
_COPIES_OF_LAYERS = re.compile(rf"\blayers\.\d+\.({'|'.join(COPIES)})$")


def is_inference_copy(name: str) -> bool:
    """Whether a parameter is one of the copies of their weights that layers of fairseq 0.12.2 hold, for a fused inference
    path: no loss reaches them, and they are made anew when a checkpoint is loaded."""
    return _COPIES_OF_LAYERS.search(name) is not None


def drop_inference_copies(tensors: Any) -> None:
    """Take the copies that layers of fairseq 0.12.2 hold out of a checkpoint's weights where this fairseq's have
    none: it would refuse the checkpoint."""
    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

    if isinstance(tensors, dict) and COPIES[0] not in TransformerEncoderLayerBase.__init__.__code__.co_names:
        for name in [name for name in tensors if type(name) is str and is_inference_copy(name)]:
            del tensors[name]


def spare_inference_copies() -> None:
    """Let ``--ddp-backend pytorch_ddp`` train models of fairseq 0.12.2.

    No loss reaches the copies of their weights that its layers hold: torch's ``DistributedDataParallel``, told of no unused
    parameters, stops at the second update. It is told to leave them alone; fairseq-fixed has no such copies.
    """
    from fairseq import models
    from torch.nn.parallel import DistributedDataParallel

    wrap = models.DistributedFairseqModel
    if getattr(wrap, "spares_copies", False):
        return

    @functools.wraps(wrap)
    def wrap_without_copies(args: Any, model: Any, *rest: Any, **options: Any) -> Any:
        spared = [
            f"{name}.{copy}"
            for name, layer in model.named_modules()
            if hasattr(layer, "load_to_BT")
            for copy in COPIES
            if hasattr(layer, copy)
        ]
        if spared:
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, spared)
        return wrap(args, model, *rest, **options)

    wrap_without_copies.spares_copies = True
    models.DistributedFairseqModel = wrap_without_copies


def data_parallel_rank() -> int:
    """This process's rank among those that see different data; 0 where nothing is distributed."""
    import torch
    from fairseq.distributed import utils

    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return 0
    return utils.get_data_parallel_rank()


def flat_shapes(flat: Any) -> Optional[list]:
    """Shapes of the parameters that a flat fp32 copy (``--fp16``) was made of; None where that is not known."""
    return getattr(flat, "maskplugins_shapes", None)


def note_flat_shapes() -> None:
    """Let fairseq's flat fp32 copy say what it was made of: optimizers are handed the copy alone."""
    from fairseq.optim.fp16_optimizer import FP16Optimizer, _FP16OptimizerMixin

    build = _FP16OptimizerMixin.build_fp32_params.__func__
    if getattr(build, "notes_shapes", False):
        return

    def build_fp32_params(cls: type, args: Any, params: Any, flatten: bool = True) -> Any:
        params = list(params)
        copies = build(cls, args, params, flatten=flatten)
        if flatten and len(copies) == 1:
            for flat in copies.values():
                flat.maskplugins_shapes = [tuple(p.shape) for p in params]
        return copies

    build_fp32_params.notes_shapes = True
    FP16Optimizer.build_fp32_params = classmethod(build_fp32_params)


def has_fused_adam(device: Any) -> bool:
    """Whether this torch has a fused Adam for a device: since 2.0 for CUDA, since 2.4 for the CPU."""
    import torch

    since = {"cuda": (2, 0), "cpu": (2, 4)}.get(device.type)
    return since is not None and version_tuple(torch.__version__) >= since and hasattr(torch, "_fused_adamw_")


def require_library(name: str, extra: str) -> None:
    """Stop where a library that a tool needs is not installed, naming the extra that brings it."""
    import importlib.util

    if importlib.util.find_spec(name) is None:
        raise UsageError(f"{name} is not installed: pip install 'fairseq_maskplugins[{extra}]'")
