"""What a pickle of a checkpoint may name (torch, no fairseq)."""

import _compat_pickle
import collections
from typing import Any, Dict, FrozenSet, Iterable, Tuple

import torch

from .rebuild import NUMPY, encode, rebuild_parameter, rebuild_tensor

DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
FACTORIES = (None, dict, list, set, int)  # of defaultdict


class Table(Dict[Tuple[str, str], Any]):
    """What a pickle may name, by module and name.

    Attributes:
        made: ids of the classes whose objects are made empty, and filled once.
        free: ids of what users allowed: it may be called with anything.
    """

    made: FrozenSet[int] = frozenset()
    free: FrozenSet[int] = frozenset()


def _named(classes: Iterable[type]) -> Dict[Tuple[str, str], Any]:
    # typing.Any is no class before Python 3.11
    return {
        (found.__module__, getattr(found, "__qualname__", None) or getattr(found, "_name", None)): found
        for found in classes
    }


def make_table(classes: Iterable[type], allowed: Iterable[type] = (), **others: Any) -> Table:
    """torch's tensors, plain containers, and these classes.

    Args:
        classes: may be made and filled.
        allowed: may also be called.
        others: in the place of ``rebuild_tensor`` and ``rebuild_parameter``.
    """
    tensor = others.get("rebuild_tensor", rebuild_tensor)
    names = {
        **_named(allowed),
        **_named(classes),
        ("torch._utils", "_rebuild_tensor"): tensor,
        ("torch._utils", "_rebuild_tensor_v2"): tensor,
        ("torch._utils", "_rebuild_parameter"): others.get("rebuild_parameter", rebuild_parameter),
        ("torch", "Size"): torch.Size,
        ("torch", "device"): torch.device,
        ("_codecs", "encode"): encode,
        ("builtins", "set"): set,
        ("collections", "OrderedDict"): collections.OrderedDict,
        ("collections", "defaultdict"): collections.defaultdict,
        ("collections", "Counter"): collections.Counter,
        **NUMPY,
    }
    names.update({("torch", name): kind for name, kind in vars(torch).items() if isinstance(kind, torch.dtype)})
    # protocol 2 has the names of Python 2: "__builtin__.long" is int
    old, modules = _compat_pickle.REVERSE_NAME_MAPPING, _compat_pickle.REVERSE_IMPORT_MAPPING
    names.update({("__builtin__", name): found for (module, name), found in names.items() if module == "builtins"})
    names.update({old.get(key, (modules.get(key[0], key[0]), key[1])): found for key, found in names.items()})
    table = Table(names)
    plain = frozenset(map(id, (*DICTS, *FACTORIES, Any)))
    table.made = frozenset(map(id, classes)) - plain
    table.free = frozenset(map(id, allowed)) - plain - table.made
    return table
