"""Where a command's results go: asked before the work for them (no fairseq here)."""

import argparse
import os
from typing import Any, Iterator, Mapping, Optional, Sequence

from ..errors import UsageError
from ..files import find_place

STDOUT = "-"
# what fairseq-preprocess writes, and fairseq reads of a directory
_DATA = ("dict.txt", ".bin", ".idx")


def check_outputs(outputs: Mapping[str, Optional[str]], *inputs: Any) -> None:
    """Refuse a place where no file can be written, and one where a file is read or another result goes.

    Args:
        outputs: files to be written, by option; None and "-" where none is.
        inputs: what is read, see :func:`list_inputs`.

    Raises:
        UsageError: names the option, the rule and the path.
    """
    taken: dict = {}
    read = list(list_inputs(inputs))
    for option, path in outputs.items():
        if path is None or path == STDOUT:
            continue
        place = find_place(path)
        folder = os.path.dirname(place)
        if os.path.isdir(path) or path.endswith(os.sep):
            raise UsageError(f"{option} {path}: is a folder, expected a file's name")
        if not os.path.isdir(folder):
            raise UsageError(f"{option} {path}: the folder {folder} does not exist")
        if not os.access(folder, os.W_OK):
            raise UsageError(f"{option} {path}: can't write into {folder}")
        if place in taken:
            raise UsageError(f"{taken[place]} and {option} must be two files, got {path} for both")
        taken[place] = option
        if os.path.exists(path) and any(os.path.samefile(one, path) for one in read):
            raise UsageError(f"{option} {path}: is one of the files to read; give another name")


def list_inputs(values: Any) -> Iterator[str]:
    """Files among values of options.

    Args:
        values: texts, lists of them, namespaces; what names no file is passed over. Of a directory, or of several joined
            by ``":"``, the dictionaries and data that fairseq-preprocess writes count, those of parts (``input0``) too.
    """
    if isinstance(values, argparse.Namespace):
        values = list(vars(values).values())
    if isinstance(values, (list, tuple)):
        for value in values:
            yield from list_inputs(value)
    elif isinstance(values, str) and values:
        paths = [values] if os.path.exists(values) else values.split(os.pathsep)
        for path in paths:
            if os.path.isfile(path):
                yield path
            elif os.path.isdir(path):
                yield from _list_data(path)


def _list_data(path: str, depth: int = 1) -> Iterator[str]:
    try:
        entries = list(os.scandir(path))
    except OSError:  # whoever reads it says so
        return
    for entry in entries:
        if entry.name.endswith(_DATA) and entry.is_file():
            yield entry.path
        elif depth and entry.is_dir():
            yield from _list_data(entry.path, depth - 1)


def without(args: argparse.Namespace, names: Sequence[str]) -> argparse.Namespace:
    """A namespace's other values: those of options that name no output."""
    return argparse.Namespace(**{name: value for name, value in vars(args).items() if name not in names})
