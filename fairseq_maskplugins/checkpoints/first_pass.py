"""A first look through the pickles of a checkpoint, before torch reads them (torch 2.7 or newer, no fairseq).

torch's own unpickler, which stays on, lets a file ask for memory that it does not have, and hashes whatever is a key. So
ours goes over the same bytes first, with stand-ins for tensors and for what users allowed: torch sees only what ours took.
"""

import _compat_pickle
import enum
import io
import pickle
from typing import Any, BinaryIO, Dict, Iterable, Optional

import torch

from .names import Table, make_table
from .rebuild import check_view
from .safe_pickle import Unpickler, check_header


class Data:
    """Stands for the data of a tensor."""

    def __init__(self, count: int):
        self.count = count


class Tensor:
    """Stands for a tensor."""


class Anything:
    """Stands for what users allowed, of which there is a class each: it may be called and filled with anything."""

    for_enum = False

    def __new__(cls, *args: Any, **options: Any) -> "Anything":
        return object.__new__(cls)

    def __setstate__(self, state: Any) -> None:
        """Nothing is kept."""


def _rebuild_tensor(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any = False, hooks: Any = None, meta: Any = None
) -> Tensor:
    if type(storage) is not Data:
        raise pickle.UnpicklingError("a tensor has something else for its data")
    check_view(storage.count, offset, size, stride)
    return Tensor()


def _rebuild_parameter(data: Any, requires_grad: Any, hooks: Any) -> Tensor:
    if type(data) is not Tensor:
        raise pickle.UnpicklingError("a parameter has something else for its data")
    return data


class FirstPass(Unpickler):
    """Makes nothing of a file that takes memory.

    Attributes:
        stand_ins: by the name as torch writes it, ``module.name``.
    """

    callables = (*Unpickler.callables[2:], _rebuild_tensor, _rebuild_parameter)
    stand_ins: Dict[str, type] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self.table:
            return self.table[module, name]
        if "Storage" in name:
            try:
                return torch.serialization.StorageType(name)
            except KeyError:
                pass
        new = _compat_pickle.NAME_MAPPING.get((module, name), (_compat_pickle.IMPORT_MAPPING.get(module, module), name))
        return self.stand_ins.get(".".join(new)) or super().find_class(module, name)

    def persistent_load(self, saved: Any) -> Data:
        view = saved[5] if len(saved) == 6 else None
        return Data(saved[4] if view is None else view[2])


def _make_stand_ins(table: Table) -> Dict[str, type]:
    """One for each thing that somebody, a user or another plug-in, told torch to be safe, but for what we know."""
    ours, found = {".".join(map(str, name)) for name in table}, {}
    for allowed in torch.serialization.get_safe_globals():
        what, name = (
            allowed if isinstance(allowed, tuple) else (allowed, f"{allowed.__module__}.{allowed.__qualname__}")
        )
        if name not in ours:
            names = isinstance(what, type) and issubclass(what, enum.Enum)
            found[name] = type("Anything", (Anything,), {"for_enum": names})
    return found


def look_through(file: BinaryIO, room: Optional[Dict[str, int]], size: int, known: Iterable[type]) -> None:
    """Refuse what torch is not to see.

    Args:
        file: a checkpoint that passed ``check_archive``.
        room: what that gave: sizes of the data by key, None for a file from before torch 1.6.
        size: of the file.
        known: classes that fairseq's checkpoints hold.

    Raises:
        pickle.UnpicklingError: there is something.
    """
    table = make_table(known, rebuild_tensor=_rebuild_tensor, rebuild_parameter=_rebuild_parameter)
    stand_ins = _make_stand_ins(table)
    table.free = frozenset(map(id, stand_ins.values()))
    kind = type("FirstPass", (FirstPass,), {"table": table, "stand_ins": stand_ins, "room": room, "size": size})
    file.seek(0)
    if room is not None:
        # by torch's own reader: the same bytes that it will see
        kind(io.BytesIO(torch._C.PyTorchFileReader(file).get_record("data.pkl")), encoding="utf-8").load()
        return
    for _ in range(3):  # a number, a version, the machine
        check_header(kind(file, encoding="utf-8").load())
    kind(file, encoding="utf-8").load()
    check_header(kind(file, encoding="utf-8").load())
