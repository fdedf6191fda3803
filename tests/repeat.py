"""Run the tests several times: which fail now and then, and which are slow?

    python tests/repeat.py --times 10                          # the default run, ten times
    python tests/repeat.py --times 10 tests/faults -m "not slow"

What follows goes to pytest (behind ``--`` where it begins with an option). Prints a line for each run, then the tests that
did not pass every time, and the slowest by the median of their times (with those of their fixtures). Exit status 1 if any
test failed in any run.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path
from typing import Dict, List, Tuple

Results = Dict[str, Tuple[str, float]]
ROOT = Path(__file__).resolve().parents[1]
USUAL = ["-n", "2", "--dist", "worksteal", "-m", "not slow and not spark"]
PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"


def read_results(path: Path) -> Results:
    """Outcome and seconds of every test in a file that ``pytest --junitxml`` wrote."""
    results: Results = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        tags = {child.tag for child in case}
        outcome = FAILED if tags & {"failure", "error"} else SKIPPED if "skipped" in tags else PASSED
        name = f"{case.get('classname')}::{case.get('name')}"
        known, seconds = results.get(
            name, (PASSED, 0.0)
        )  # a test that fails and whose fixture fails after it is there twice
        results[name] = (FAILED if FAILED in (known, outcome) else outcome, seconds + float(case.get("time")))
    return results


def run_once(arguments: List[str]) -> Tuple[int, Results, str]:
    """Exit status of pytest, what became of every test, and pytest's last line."""
    with tempfile.TemporaryDirectory(prefix="repeat-") as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *arguments]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        results = read_results(report) if report.exists() else {}
        return done.returncode, results, (done.stdout.splitlines() or ["(nothing was printed)"])[-1]


def unsteady(runs: List[Results]) -> Dict[str, Dict[str, int]]:
    """Tests that failed, were missing, or passed here and were skipped there, with how often each came about."""
    counts: Dict[str, Dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for name in sorted(set().union(*runs)):
        for run in runs:
            counts[name][run[name][0] if name in run else "missing"] += 1
    return {name: dict(found) for name, found in counts.items() if len(found) > 1 or FAILED in found}


def slowest(runs: List[Results], count: int) -> List[Tuple[float, float, str]]:
    """Median and longest time of the slowest tests, in seconds, and their names."""
    times: Dict[str, List[float]] = defaultdict(list)
    for run in runs:
        for name, (_, seconds) in run.items():
            times[name].append(seconds)
    return sorted(((statistics.median(t), max(t), name) for name, t in times.items()), reverse=True)[:count]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10, help="how often (default: 10)")
    parser.add_argument("--slowest", type=int, default=25, help="how many of the slowest are listed (default: 25)")
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="for pytest (default: the default run)")
    args = parser.parse_args()
    rest = args.rest[1:] if args.rest[:1] == ["--"] else args.rest
    if args.times < 1:
        parser.error(f"--times must be at least 1, got {args.times}")
    runs, failed = [], False
    for number in range(1, args.times + 1):
        begin = time.monotonic()
        status, results, last = run_once(rest or USUAL)
        print(f"run {number}: {time.monotonic() - begin:.0f} s: {last}", flush=True)
        failed |= status != 0
        runs.append(results)
        for name, found in unsteady([results]).items():
            print(f"    {found} {name}", flush=True)
    if not set().union(*runs):
        print("no test was run", file=sys.stderr)
        return 1
    print("\nnot the same every time, or failed:")
    for name, found in unsteady(runs).items():
        print(f"    {', '.join(f'{outcome} {count}' for outcome, count in sorted(found.items()))}: {name}")
    print("\n| median s | longest s | test |\n|---|---|---|")
    for median, longest, name in slowest(runs, args.slowest):
        print(f"| {median:.1f} | {longest:.1f} | `{name}` |")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
