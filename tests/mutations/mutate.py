"""Break the product in named ways and see whether the tests notice.

    python tests/mutations/mutate.py                 # all of them, some minutes
    python tests/mutations/mutate.py --only momentum # those whose name or file holds a word
    python tests/mutations/mutate.py --list

The tests named by the mutants run once on the code as it is, and must pass; then once for each mutant, on a copy of the
tree with that one edit, and must fail. Exit status 1 if a mutant survives, or could not be judged.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "fairseq_maskplugins"
PARTS = (PACKAGE, "tests", "examples", "scripts", "pyproject.toml", "setup.py", "README.md", "CONTRIBUTING.md")
SURVIVED, CAUGHT = "SURVIVED", "caught"


def check(mutant: Mutant, root: Path = ROOT) -> Optional[str]:
    """What is wrong with a mutant itself, or None."""
    path = root / PACKAGE / mutant.file
    if not path.is_file():
        return f"{mutant.file}: no such file"
    found = path.read_text().count(mutant.old)
    if found != 1:
        return f"{mutant.file}: the text to replace must occur once, found {found} times: {mutant.old!r}"
    missing = [test for test in mutant.tests if not (root / "tests" / test).is_file()]
    return f"tests/{missing[0]}: no such file" if missing else None


def copy_tree(target: Path) -> None:
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, target / part, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        elif source.exists():
            shutil.copy(source, target / part)


def run_tests(root: Path, tests: Sequence[str], timeout: float) -> Tuple[int, str]:
    """Exit status of pytest (-1: it took too long) and the line that says most."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow and not spark", "-p", "no:cacheprovider"]
    env = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command + [f"tests/{test}" for test in tests],
            cwd=root, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return -1, f"no end after {timeout:g} s"
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return done.returncode, (lines or done.stdout.splitlines() or ["(nothing)"])[-1 if not lines else 0]


def judge(mutant: Mutant, timeout: float = 600.0) -> Tuple[str, str]:
    """``CAUGHT`` and the test that failed, ``SURVIVED``, or what went wrong.

    A failing test is asked for: an error at import or a test file that can't be collected is not the tests' merit.
    """
    problem = check(mutant)
    if problem:
        return "no mutant", problem
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder)
        copy_tree(root)
        path = root / PACKAGE / mutant.file
        path.write_text(path.read_text().replace(mutant.old, mutant.new))
        for test in mutant.tests:
            status, line = run_tests(root, [test], timeout)
            if status == 1 and line.startswith("FAILED"):
                return CAUGHT, line.split(" - ")[0].replace("FAILED ", "")
            if status != 0:
                return "not judged", f"pytest ended with {status}: {line}"
    return SURVIVED, f"all of {', '.join(mutant.tests)} passed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="WORD", help="mutants whose name or file holds this word")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1)), help="at once (default: the cores)")
    parser.add_argument("--list", action="store_true", help="print the mutants and end")
    args = parser.parse_args()
    chosen: List[Mutant] = [m for m in MUTANTS if not args.only or args.only in m.name or args.only in m.file]
    if not chosen:
        parser.error(f"--only {args.only}: no mutant has that in its name or file")
    if args.list:
        for mutant in chosen:
            print(f"{mutant.file}: {mutant.name}")
        return 0
    begin = time.time()
    tests = sorted({test for mutant in chosen for test in mutant.tests})
    print(f"the code as it is: {len(tests)} test files", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy_tree(Path(folder))
        status, line = run_tests(Path(folder), tests, 3600.0)
    print(f"  {line}", flush=True)
    if status != 0:
        print("the tests must pass before anything is broken", file=sys.stderr)
        return 1
    bad = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        for mutant, (verdict, detail) in zip(chosen, pool.map(judge, chosen)):
            bad += verdict != CAUGHT
            print(f"{verdict}: {mutant.name} ({mutant.file})\n    {detail}", flush=True)
    print(f"{len(chosen) - bad} of {len(chosen)} mutants caught, {time.time() - begin:.0f} s")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
