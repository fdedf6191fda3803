"""``--json``: one object on standard output and nothing else there, for scripts (no fairseq)."""

import contextlib
import json
import math
import sys
from typing import Any, Dict, Iterator

import numpy as np

from ..errors import UsageError

JSON_HELP = "print one JSON object and nothing else, for scripts; what is not a number is null"


def add_json_option(parser: Any) -> None:
    """Add ``--json`` to a parser or a group of one."""
    parser.add_argument("--json", action="store_true", help=JSON_HELP)


@contextlib.contextmanager
def reporting(as_json: bool) -> Iterator[Dict[str, Any]]:
    """A dict to be filled in the block, and printed at its end as one object, where ``as_json`` asks for that.

    What the block prints goes to standard error then, so that a script finds the object alone. Where the block fails
    nothing is printed.
    """
    report: Dict[str, Any] = {}
    if not as_json:
        yield report
        return
    if sys.stdout is None:
        raise UsageError("--json: standard output is closed, and the object goes there")
    with contextlib.redirect_stdout(sys.stderr):
        yield report
    print(to_json(report))


def to_json(value: Any) -> str:
    """One line of JSON; NaN and infinities, which JSON does not have, become null."""
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
