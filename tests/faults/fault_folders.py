"""What is in a folder, before and after."""

import json
import re
import shutil
import struct
from pathlib import Path
from typing import Any, Dict, Sequence

_PART = re.compile(r".+\.[0-9a-f]{8}\.part")


def read(folder: Path) -> Dict[str, Any]:
    """What each file holds, by its path; None for a folder."""
    paths = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): _content(path) if path.is_file() else None for path in paths}


def _content(path: Path) -> Any:
    """The bytes; of a file of safetensors its head as it is meant, which is written in any order."""
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0] if len(raw) > 8 else 0
    if raw[8:9] == b"{" and length < len(raw):
        return json.dumps(json.loads(raw[8 : 8 + length]), sort_keys=True).encode() + raw[8 + length :]
    return raw


def empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def assert_whole(folder: Path, results: Sequence[str], old: dict, new: dict, litter: bool = True) -> None:
    """Every result is as it was or as it should become; beside it are at most ``*.part`` folders."""
    found = read(folder)
    tops = {path.name for path in folder.iterdir()}
    parts = {name for name in tops if _PART.fullmatch(name)}
    assert tops - parts <= set(results), f"what is this? {sorted(tops - parts - set(results))}"
    assert litter or not parts, f"left behind: {sorted(parts)}"
    for name in results:
        versions = [_below(where, name) for where in (found, old, new)]
        assert versions[0] in versions[1:], f"{name} is neither what it was nor what it becomes"


def _below(files: dict, name: str) -> dict:
    return {path: content for path, content in files.items() if path == name or path.startswith(name + "/")}
