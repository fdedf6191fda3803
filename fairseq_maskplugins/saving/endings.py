"""Why a training run ended, as one line (no fairseq here)."""

import re
from typing import Optional

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
