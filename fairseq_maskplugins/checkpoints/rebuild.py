"""What a pickle of a checkpoint may call, with stand-ins that take plain arguments alone (torch, no fairseq).

An argument comes from the file and may be anything: its type is looked at before it is compared, measured or shown, as
each of these may take time or memory without end.
"""

import collections
import pickle
from typing import Any, Tuple

import numpy as np
import torch

from ..compat import typed_storage

MOST_DIMENSIONS = 64
LONGEST_NAME = 64


class Refused(pickle.UnpicklingError):
    """Says what is wrong with a checkpoint, in words that follow "refused to load this checkpoint: "."""


def encode(text: str, encoding: str = "latin1") -> bytes:
    """Protocol 2 writes bytes as text and this call."""
    if type(text) is not str or type(encoding) is not str or encoding != "latin1":
        raise pickle.UnpicklingError("bytes must be written as text in latin1")
    return text.encode("latin1")


def check_sizes(sizes: Any) -> Tuple[int, ...]:
    """A shape, strides: a flat tuple of a few whole numbers."""
    if type(sizes) not in (tuple, torch.Size) or len(sizes) > MOST_DIMENSIONS:
        raise pickle.UnpicklingError("the shape of a tensor is damaged")
    if not all(type(n) is int and 0 <= n < 2**63 for n in sizes):
        raise pickle.UnpicklingError("the shape of a tensor is damaged")
    return sizes


def check_view(count: int, offset: Any, size: Any, stride: Any) -> None:
    """A tensor must lie inside its data of ``count`` entries: torch would enlarge the data of an old file."""
    size, stride = check_sizes(size), check_sizes(stride)
    (offset,) = check_sizes((offset,))
    if len(size) != len(stride):
        raise pickle.UnpicklingError("the shape of a tensor is damaged")
    last = offset + sum((n - 1) * step for n, step in zip(size, stride)) if 0 not in size else -1
    if last >= count:
        raise pickle.UnpicklingError(f"a tensor of shape {tuple(size)} is larger than its data")


def rebuild_tensor(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any = False, hooks: Any = None, meta: Any = None
) -> torch.Tensor:
    """A view of a storage."""
    if not isinstance(storage, typed_storage()):
        raise pickle.UnpicklingError("a tensor has something else for its data")
    check_view(storage.size(), offset, size, stride)
    return torch._utils._rebuild_tensor_v2(
        storage, offset, size, stride, requires_grad is True, collections.OrderedDict()
    )


def rebuild_parameter(data: Any, requires_grad: Any, hooks: Any) -> torch.nn.Parameter:
    if not isinstance(data, torch.Tensor):
        raise pickle.UnpicklingError("a parameter has something else for its data")
    return torch._utils._rebuild_parameter(data, requires_grad is True, collections.OrderedDict())


class Kind:
    """Stands for a numpy type, of the few that plain numbers have: numpy's own may be made to describe anything."""

    NAMES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")

    def __init__(self, name: str, align: Any = False, copy: Any = True):
        if type(name) is not str or name not in self.NAMES:
            raise pickle.UnpicklingError("it has numbers of a type that is in no checkpoint")
        self.name, self.order = name, "="

    def __setstate__(self, state: Any) -> None:
        if (
            type(state) is not tuple
            or len(state) < 2
            or type(state[1]) is not str
            or state[1] not in ("<", ">", "=", "|")
        ):
            raise pickle.UnpicklingError("a numpy type is damaged")
        self.order = state[1]


def scalar(kind: Any, data: bytes) -> Any:
    """A numpy number from its bytes."""
    if type(kind) is not Kind or type(data) is not bytes:
        raise pickle.UnpicklingError("a numpy number is damaged")
    dtype = np.dtype(kind.order + kind.name)
    if len(data) != dtype.itemsize:
        raise pickle.UnpicklingError("a numpy number is damaged")
    return np.frombuffer(data, dtype)[0]


def check_size(sizes: Any = ()) -> None:
    """The arguments of ``torch.Size``."""
    check_sizes(sizes)


def check_device(name: Any, index: Any = 0) -> None:
    """The arguments of ``torch.device``."""
    if type(name) is not str or len(name) > LONGEST_NAME or type(index) is not int:
        raise pickle.UnpicklingError("the name of a device is damaged")


# pickles name these, and get those
NUMPY = {
    ("numpy", "dtype"): Kind,
    ("numpy.core.multiarray", "scalar"): scalar,
    ("numpy._core.multiarray", "scalar"): scalar,
}
