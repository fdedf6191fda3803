"""Why a training run ended, as one line, and what it was waiting for (no fairseq here)."""

import math
import re
from typing import Any, Dict, Optional

from ..errors import UsageError

PATIENCE = "maskplugins_patience"  # in a checkpoint's extra state
_AGAIN = "run the same command again, it goes on from the last checkpoint"


def explain_failure(message: str) -> Optional[str]:
    """What is said of an error that says nothing of this run but that a process it needs has gone; None for others.

    Args:
        message: of torch's ``RuntimeError``.
    """
    worker = re.search(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (?:is|exited|was) ?(.*)", message)
    if worker:
        how = worker[2].split(".")[0].strip()
        return (
            f"a data worker (process {worker[1]}) has died ({how}); the system kills processes when memory runs out, which "
            f"fewer --num-workers need less of; {_AGAIN}"
        )
    lost = re.search(r"(Connection closed by peer|Connection reset by peer|Broken pipe)", message)
    if lost and "gloo" in message:
        return f"another rank has gone ({lost[1].lower()}): its own output says why; {_AGAIN} on every rank"
    return None


def read_patience(counter: Any) -> Optional[Dict[str, Any]]:
    """What fairseq's early stopping has seen: the best figure, and how many validations have not reached it since.

    Args:
        counter: fairseq's function, which has both as attributes once it was called; or None.
    """
    best = getattr(counter, "best", None)
    return None if best is None else {"best": float(best), "waited": int(counter.num_runs)}


def restore_patience(counter: Any, found: Any, path: str) -> int:
    """Let early stopping go on from a checkpoint; returns the validations that it has waited.

    Raises:
        UsageError: what the checkpoint ``path`` has is no such record.
    """
    best, waited = (found.get(name) for name in ("best", "waited")) if isinstance(found, dict) else (None, None)
    if type(best) is not float or math.isnan(best) or type(waited) is not int or not 0 <= waited < 2**31:
        raise UsageError(
            f"{path}: its record of --patience must be a number and a count; --reset-meters starts to count anew"
        )
    if counter is not None:
        counter.best, counter.num_runs = best, waited
    return waited
