"""Watching a command from outside: what its processes hold in memory, files and processes, stage by stage (Linux)."""

import os
import re
import statistics
import subprocess
import time
from collections import defaultdict
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

MEMORY = re.compile(r"^(Rss|Pss|Private_Clean|Private_Dirty|Private_Hugetlb):\s+(\d+) kB", re.MULTILINE)


class Sample(NamedTuple):
    """Of a process and its descendants together.

    Attributes:
        rss, pss, uss: MB; in memory, with shared pages counted once for each process, once in all, and not at all.
        files: open file descriptors.
        maps: files mapped into memory that are no code: data sets, caches.
        processes: how many there are.
    """

    rss: float
    pss: float
    uss: float
    files: float
    maps: float
    processes: float


def can_watch() -> bool:
    return os.path.exists("/proc/self/smaps_rollup")


def descendants(pid: int) -> List[int]:
    """The process and all below it."""
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        try:
            for task in os.listdir(f"/proc/{found[-1]}/task"):
                with open(f"/proc/{found[-1]}/task/{task}/children") as file:
                    left += map(int, file.read().split())
        except OSError:
            pass  # it has just ended
    return found


def _look(pid: int) -> Optional[List[float]]:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            sizes: Dict[str, float] = defaultdict(float)
            for name, kilobytes in MEMORY.findall(file.read()):
                sizes["uss" if name.startswith("Private") else name] += int(kilobytes) / 1024
        with open(f"/proc/{pid}/maps") as file:
            maps = {line.split(maxsplit=5)[5].strip() for line in file if line.count("/")}
        files = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    data = [path for path in maps if path.endswith((".bin", ".idx", ".pmi-cache"))]
    return [sizes["Rss"], sizes["Pss"], sizes["uss"], files, len(data), 1]


def sample(pid: int) -> Optional[Sample]:
    """What the tree holds now; None where none of it is left."""
    seen = [found for found in map(_look, descendants(pid)) if found is not None]
    return Sample(*map(sum, zip(*seen))) if seen else None


def watch(
    command: Sequence[str], log: str, stage: Callable[[str], Optional[int]], every: float = 1.0, timeout: float = 1800
) -> Dict[int, List[Sample]]:
    """Run a command to its end.

    Args:
        command: what to run; its output goes to the file ``log``.
        stage: gives the stage that a line of output begins (an epoch, a thousand updates), or None.
        every: seconds between two looks.

    Returns:
        samples by stage; stage 0 is before any line began one.
    """
    found: Dict[int, List[Sample]] = defaultdict(list)
    current, begun = 0, time.monotonic()
    with open(log, "w") as out, open(log) as lines:
        process = subprocess.Popen([str(part) for part in command], stdout=out, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                for line in lines:
                    begins = stage(line)
                    current = current if begins is None else begins
                now = sample(process.pid)
                if now is not None:
                    found[current].append(now)
                assert time.monotonic() - begun < timeout, f"it did not end:\n{open(log).read()[-3000:]}"
                time.sleep(every)
        finally:
            if process.poll() is None:
                for pid in reversed(descendants(process.pid)):
                    os.kill(pid, 9)
            process.wait()
    assert process.returncode == 0, open(log).read()[-3000:]
    return dict(found)


def settled(samples: List[Sample]) -> Sample:
    """The median of each figure over the later half of a stage."""
    later = samples[len(samples) // 2 :]
    return Sample(*(statistics.median(column) for column in zip(*later)))
