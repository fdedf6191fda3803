"""Unpickling what checkpoints hold, and nothing that runs code (torch, no fairseq).

Newer versions of torch load weights only by themselves. For older ones this is the same protection: a pickle may name what
is on a list, call and fill what is on the list, and use the instructions that ``torch.save`` writes.
"""

import _compat_pickle
import collections
import pickle
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterable, Optional, Tuple

import numpy as np
import torch

Table = Dict[Tuple[str, str], Any]

# what torch.save writes in protocol 2, and the same things in the protocols up to 5
_STACK = "MARK STOP PROTO FRAME BINGET LONG_BINGET BINPUT LONG_BINPUT MEMOIZE"
_VALUES = (
    "NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES "
    "SHORT_BINBYTES SHORT_BINSTRING BINSTRING EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST EMPTY_DICT EMPTY_SET"
)
_PLAIN = (*_STACK.split(), *_VALUES.split())
# of these the object that is filled or called is looked at first
_CHECKED = "APPEND APPENDS SETITEM SETITEMS ADDITEMS GLOBAL STACK_GLOBAL REDUCE NEWOBJ BUILD BINPERSID"
_CONTAINERS = {
    "APPEND": (list,),
    "APPENDS": (list,),
    "SETITEM": (dict, collections.OrderedDict, collections.defaultdict),
    "SETITEMS": (dict, collections.OrderedDict, collections.defaultdict),
    "ADDITEMS": (set,),
}


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Protocol 2 writes bytes as text and this call."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes are written as latin1, found {encoding!r}")
    return text.encode("latin1")


def _rebuild_tensor(
    storage: Any,
    offset: int,
    size: Tuple[int, ...],
    stride: Tuple[int, ...],
    requires_grad: bool = False,
    hooks: Any = None,
    metadata: Any = None,
) -> torch.Tensor:
    """A view of a storage, which must lie inside it: torch would enlarge the storage of an old file."""
    inside = len(size) == len(stride) and all(type(n) is int and n >= 0 for n in (offset, *size, *stride))
    last = offset + sum((n - 1) * step for n, step in zip(size, stride)) if inside and 0 not in size else -1
    if not inside or last >= storage.size():
        raise pickle.UnpicklingError(f"a tensor of shape {tuple(size)} is larger than its data")
    return torch._utils._rebuild_tensor_v2(
        storage, offset, size, stride, bool(requires_grad), collections.OrderedDict()
    )


def _rebuild_parameter(data: torch.Tensor, requires_grad: bool, hooks: Any) -> torch.nn.Parameter:
    return torch._utils._rebuild_parameter(data, bool(requires_grad), collections.OrderedDict())


class Kind:
    """Stands for a numpy type, of the few that plain numbers have: numpy's own may be made to describe anything."""

    NAMES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")

    def __init__(self, name: str, align: Any = False, copy: Any = True):
        if name not in self.NAMES:
            raise pickle.UnpicklingError(f"numbers of the type {name!r} are in no checkpoint")
        self.name, self.order = name, "="

    def __setstate__(self, state: Any) -> None:
        if type(state) is not tuple or len(state) < 2 or state[1] not in ("<", ">", "=", "|"):
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


# pickles name these, and get those
NUMPY = {
    ("numpy", "dtype"): Kind,
    ("numpy.core.multiarray", "scalar"): scalar,
    ("numpy._core.multiarray", "scalar"): scalar,
}


def make_table(classes: Iterable[type]) -> Table:
    """What a pickle may name, by module and name: torch's tensors, plain containers, and these classes."""
    table: Table = {
        ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
        ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
        ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
        ("torch", "Size"): torch.Size,
        ("torch", "device"): torch.device,
        ("_codecs", "encode"): _encode,
        ("builtins", "set"): set,
        **NUMPY,
    }
    table.update({("torch", name): kind for name, kind in vars(torch).items() if isinstance(kind, torch.dtype)})
    for found in classes:
        # typing.Any is no class before Python 3.11
        name = getattr(found, "__qualname__", None) or getattr(found, "_name", None)
        table[found.__module__, name] = found
    # protocol 2 has the names of Python 2: "__builtin__.long" is int
    old = _compat_pickle.REVERSE_NAME_MAPPING
    modules = _compat_pickle.REVERSE_IMPORT_MAPPING
    table.update({("__builtin__", name): found for (module, name), found in table.items() if module == "builtins"})
    table.update({old.get(key, (modules.get(key[0], key[0]), key[1])): found for key, found in table.items()})
    return table


class _Dispatch(dict):
    def __missing__(self, code: int) -> Callable[[Any], None]:
        raise pickle.UnpicklingError(f"it uses the instruction {bytes([code])!r}, which no checkpoint needs")


def _opcode(name: str) -> int:
    return getattr(pickle, name)[0]


class Unpickler(pickle._Unpickler):
    """Reads a pickle whose names are all in a table.

    Attributes:
        table: set on a subclass.
        room: bytes of data behind each storage's key; None where they are not known beforehand.
        left: bytes of storages that may still be asked for, where ``room`` is None.
    """

    table: Table = {}
    room: Optional[Dict[str, int]] = None
    left: int = 0

    def __init__(self, file: Any, **options: Any):
        super().__init__(file, **options)
        self.asked: Dict[str, int] = {}

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.table[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"Unsupported global: GLOBAL {module}.{name}") from None

    def _refuse(self, what: Any) -> None:
        name = f"{getattr(what, '__module__', '')}.{getattr(what, '__qualname__', type(what).__name__)}"
        raise pickle.UnpicklingError(f"it would call or fill {name}, which no checkpoint does")

    def _check(self, name: str) -> None:
        if name in _CONTAINERS:
            filled = (
                self.stack[-2] if name == "APPEND" else self.stack[-3] if name == "SETITEM" else self.metastack[-1][-1]
            )
            if type(filled) not in _CONTAINERS[name]:
                self._refuse(filled)
        elif name in ("REDUCE", "NEWOBJ"):
            called = self.stack[-2]
            if not any(called is known for known in self.table.values()) or isinstance(called, torch.dtype):
                self._refuse(called)
        elif name == "BUILD":
            kind = type(self.stack[-2])
            if kind is set or not any(kind is known for known in self.table.values()):
                self._refuse(self.stack[-2])
        elif name == "BINPERSID":
            self._check_storage(self.stack[-1])

    def _check_storage(self, saved: Any) -> None:
        if type(saved) is not tuple or len(saved) < 5 or saved[0] not in ("storage", b"storage"):
            raise pickle.UnpicklingError("it refers to something else than the data of a tensor")
        kind, key, _, count = saved[1:5]
        if type(key) is not str or type(count) is not int or count < 0:
            raise pickle.UnpicklingError("it refers to the data of a tensor in a wrong way")
        size = count * torch._utils._element_size(getattr(kind, "dtype", torch.uint8))
        there = self.left if self.room is None else self.room.get(key, 0)
        if size > there and key not in self.asked:
            raise pickle.UnpicklingError(f"the data of a tensor must have {size} bytes, the file has {there}")
        if key not in self.asked:
            self.asked[key] = size
            self.left -= size
        elif size > self.asked[key]:
            raise pickle.UnpicklingError("the data of a tensor has two sizes")

    dispatch = _Dispatch({_opcode(name): pickle._Unpickler.dispatch[_opcode(name)] for name in _PLAIN})


def _checked(name: str) -> Callable[[Any], None]:
    run = pickle._Unpickler.dispatch[_opcode(name)]

    def check_and_run(self: Any) -> None:
        self._check(name)
        run(self)

    return check_and_run


Unpickler.dispatch.update({_opcode(name): _checked(name) for name in _CHECKED.split()})


def pickle_module(table: Table, room: Optional[Dict[str, int]], left: int) -> Any:
    """What ``torch.load`` takes as ``pickle_module``; see :class:`Unpickler`."""
    kind = type("Unpickler", (Unpickler,), {"table": table, "room": room, "left": left})
    return SimpleNamespace(
        __name__="safe_pickle", Unpickler=kind, load=lambda file, **options: kind(file, **options).load()
    )
