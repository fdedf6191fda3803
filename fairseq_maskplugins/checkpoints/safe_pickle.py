"""Unpickling what checkpoints hold, and nothing that runs code or takes more memory than its file (torch, no fairseq).

A pickle may name what is in a table, call and fill what is meant for that, and use the instructions that ``torch.save``
writes. Older versions of torch read with this; newer ones, which load weights only by themselves, are shown nothing that
this has not read before: see ``first_pass.py``.
"""

import collections
import enum
import pickle
from types import BuiltinFunctionType, FunctionType, SimpleNamespace
from typing import Any, Callable, Dict, Iterable, Optional, Tuple

import numpy as np
import torch

from .names import DICTS, FACTORIES, Table
from .rebuild import (
    Kind,
    Refused,
    check_device,
    check_size,
    encode,
    rebuild_parameter,
    rebuild_tensor,
    scalar,
)

# what torch.save writes in protocol 2, and the same things in the protocols up to 5
_STACK = "MARK STOP PROTO FRAME BINGET LONG_BINGET BINPUT LONG_BINPUT MEMOIZE"
_VALUES = (
    "NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES "
    "SHORT_BINBYTES SHORT_BINSTRING BINSTRING EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST EMPTY_DICT EMPTY_SET"
)
_PLAIN = (*_STACK.split(), *_VALUES.split())

LONGEST_TUPLE = 16  # of a key
MOST_TUPLES = 1000  # as keys: their hashes, unlike those of texts, can be made to collide
LARGEST_KEY = 2**61 - 2  # the same goes for whole numbers beyond
_KEYS = frozenset((type(None), bool, int, float, str, bytes, torch.dtype))
_LARGE = {("builtins", "bytearray"), ("__builtin__", "bytearray")}  # torch lets files ask for one of any size


class _Dispatch(dict):
    def __missing__(self, code: int) -> Callable[[Any], None]:
        raise pickle.UnpicklingError(f"it uses the instruction {bytes([code])!r}, which no checkpoint needs")


def _opcode(name: str) -> int:
    return getattr(pickle, name)[0]


class Unpickler(pickle._Unpickler):
    """Reads a pickle whose names are all in a table.

    Attributes:
        table: set on a subclass, as what follows.
        size: bytes of the file: parts that are copied, and data whose size is not known beforehand, may have as many.
        room: bytes of data behind each storage's key; None where they are not known beforehand.
    """

    table: Table = Table()
    size: int = 0
    room: Optional[Dict[str, int]] = None

    def __init__(self, file: Any, **options: Any):
        super().__init__(file, **options)
        self.asked: Dict[str, int] = {}
        self.left = self.uncopied = self.size
        self.tuples = 0

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self.table:
            return self.table[module, name]
        if (module, name) in _LARGE:
            raise Refused(
                f"it holds {module}.{name}, which is no part of a fairseq checkpoint and could fill the memory"
            )
        raise pickle.UnpicklingError(f"Unsupported global: GLOBAL {module}.{name}")

    def _refuse(self, what: Any) -> None:
        # nothing of an object of the file is asked for, which may answer with anything
        kind = what if isinstance(what, (type, FunctionType, BuiltinFunctionType)) else type(what)
        raise Refused(f"it would call or fill {kind.__module__}.{kind.__qualname__} in a way that no checkpoint does")

    # what is filled

    def check_items(self, filled: Any, kinds: tuple, keys: Iterable[Any]) -> None:
        if type(filled) not in kinds:
            self._refuse(filled)
        for key in keys:
            self.check_key(key)

    def check_key(self, key: Any) -> None:
        """A key is hashed and compared, which must take no time: plain, or a short flat tuple of what is plain."""
        if type(key) is str or self._is_plain(key):
            return
        if type(key) is tuple and len(key) <= LONGEST_TUPLE and all(map(self._is_plain, key)):
            self.tuples += 1
            if self.tuples <= MOST_TUPLES:
                return
            raise Refused(f"more than {MOST_TUPLES} of its keys are tuples")
        unusual = {tuple: "nested or long tuple", int: "number beyond 2^61"}.get(type(key), type(key).__name__)
        raise Refused(
            f"one of its keys, or a part of a set, is a {unusual}: in a checkpoint they are texts and numbers"
        )

    def _is_plain(self, value: Any) -> bool:
        kind = type(value)
        if kind is int:
            return -LARGEST_KEY <= value <= LARGEST_KEY
        return kind in _KEYS or issubclass(kind, (np.generic, enum.Enum)) or getattr(kind, "for_enum", False)

    def _copy(self, count: int) -> None:
        self.uncopied -= count
        if self.uncopied < 0:
            raise Refused("it copies a part of itself over and over, which would fill the memory")

    # what is called

    def check_reduce(self, called: Any, args: Any) -> None:
        if id(called) in self.table.free:
            return
        if type(args) is not tuple:
            self._refuse(called)
        if called is encode:
            self._copy(len(args[0]) if args and type(args[0]) is str else 0)
        elif called is collections.defaultdict:
            if len(args) != 1 or not any(args[0] is factory for factory in FACTORIES):
                self._refuse(called)
        elif called is set or called is collections.OrderedDict or called is collections.Counter:
            self._check_copied(called, *args)
        elif called is torch.Size:
            check_size(*args)
        elif called is torch.device:
            check_device(*args)
        elif not any(called is one for one in self.callables):
            self._refuse(called)

    def _check_copied(self, called: Any, *parts: Any) -> None:
        if not parts:
            return
        (parts,) = parts
        if type(parts) not in ((dict,) if called is collections.Counter else (list, tuple)):
            self._refuse(called)
        self._copy(len(parts))
        for part in parts:
            if called is collections.OrderedDict:
                if type(part) not in (list, tuple) or len(part) != 2:
                    self._refuse(called)
                part = part[0]
            self.check_key(part)

    callables: Tuple[Any, ...] = (rebuild_tensor, rebuild_parameter, scalar, Kind)

    def check_new(self, cls: Any, args: Any) -> None:
        empty = type(args) is tuple and not args
        if id(cls) not in self.table.free and not (empty and id(cls) in self.table.made):
            self._refuse(cls)

    def check_build(self, filled: Any, state: Any) -> None:
        """Attributes are set once, on an object that has none, and no name is one that Python itself would call."""
        kind = type(filled)
        if kind is Kind or id(kind) in self.table.free:
            return
        if id(kind) not in self.table.made and kind is not collections.OrderedDict or type(state) is not dict:
            self._refuse(filled)
        if vars(filled) or not all(type(name) is str and not name.startswith("__") for name in state):
            self._refuse(filled)
        if kind.__module__.startswith("omegaconf."):  # which looks at what it finds there
            types = [value for name, value in state.items() if name.endswith("_type")]
            if not all(value is None or value is Any or isinstance(value, type) for value in types):
                self._refuse(filled)
            if id(type(state.get("_metadata"))) not in self.table.made | {id(type(None))}:
                self._refuse(filled)

    # the data of tensors

    def check_storage(self, saved: Any) -> None:
        if type(saved) is not tuple or not 5 <= len(saved) <= 6 or type(saved[0]) not in (str, bytes):
            raise pickle.UnpicklingError("it refers to something else than the data of a tensor")
        if saved[0] not in ("storage", b"storage"):
            raise pickle.UnpicklingError("it refers to something else than the data of a tensor")
        kind, key, _, count = saved[1:5]
        view = saved[5] if len(saved) == 6 else None
        plain = type(kind) is torch.serialization.StorageType and type(key) is str and type(count) is int and count >= 0
        if view is not None:
            plain = plain and type(view) is tuple and [*map(type, view)] == [str, int, int]
            plain = plain and 0 <= view[1] and 0 <= view[2] and view[1] + view[2] <= count
        if not plain:
            raise pickle.UnpicklingError("it refers to the data of a tensor in a wrong way")
        size = count * torch._utils._element_size(kind.dtype)
        there = self.left if self.room is None else self.room.get(key, 0)
        if size > there and key not in self.asked:
            raise pickle.UnpicklingError(f"the data of a tensor must have {size} bytes, the file has {there}")
        if key not in self.asked:
            self.asked[key] = size
            self.left -= size
        elif size > self.asked[key]:
            raise pickle.UnpicklingError("the data of a tensor has two sizes")

    dispatch = _Dispatch({_opcode(name): pickle._Unpickler.dispatch[_opcode(name)] for name in _PLAIN})


# by instruction: what it works on is looked at before
_CHECKED = {
    "GLOBAL": lambda self: None,  # find_class looks
    "STACK_GLOBAL": lambda self: None,
    "APPEND": lambda self: self.check_items(self.stack[-2], (list,), ()),
    "APPENDS": lambda self: self.check_items(self.metastack[-1][-1], (list,), ()),
    "SETITEM": lambda self: self.check_items(self.stack[-3], DICTS, self.stack[-2:-1]),
    "SETITEMS": lambda self: self.check_items(self.metastack[-1][-1], DICTS, self.stack[::2]),
    "ADDITEMS": lambda self: self.check_items(self.metastack[-1][-1], (set,), self.stack),
    "REDUCE": lambda self: self.check_reduce(*self.stack[-2:]),
    "NEWOBJ": lambda self: self.check_new(*self.stack[-2:]),
    "BUILD": lambda self: self.check_build(*self.stack[-2:]),
    "BINPERSID": lambda self: self.check_storage(self.stack[-1]),
}


def _checked(name: str) -> Callable[[Any], None]:
    check, run = _CHECKED[name], pickle._Unpickler.dispatch[_opcode(name)]

    def check_and_run(self: Any) -> None:
        check(self)
        run(self)

    return check_and_run


Unpickler.dispatch.update({_opcode(name): _checked(name) for name in _CHECKED})


def check_header(value: Any) -> Any:
    """What stands around the object in a file from before torch 1.6: numbers, a table, a list of keys, which are hashed."""
    if type(value) in (int, dict) or type(value) is list and all(type(key) is str for key in value):
        return value
    raise pickle.UnpicklingError("its header is damaged")


def pickle_module(table: Table, room: Optional[Dict[str, int]], size: int) -> Any:
    """What ``torch.load`` takes as ``pickle_module``; see :class:`Unpickler`."""
    kind = type("Unpickler", (Unpickler,), {"table": table, "room": room, "size": size})
    return SimpleNamespace(
        __name__="safe_pickle", Unpickler=kind, load=lambda file, **options: check_header(kind(file, **options).load())
    )
