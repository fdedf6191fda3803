"""Start-up time of ``maskplugins --help`` and of each command's help, beside that of Python alone.

    python benchmarks/startup.py [--repeats 5]

The commands take turns; the smallest wall time of each counts. ``show-masks`` and ``pmi stats`` show fairseq's own options,
and import fairseq for that.
"""

import argparse
import os
import subprocess
import sys
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, ROOT)

from fairseq_maskplugins.cli import COMMANDS  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    tool = [sys.executable, "-m", "fairseq_maskplugins.cli"]
    commands = {"python -c pass": [sys.executable, "-c", "pass"], "maskplugins --help": [*tool, "--help"]}
    for words in (*COMMANDS, "pmi build", "pmi stats", "fisher select"):
        commands[f"maskplugins {words} --help"] = [*tool, *words.split(), "--help"]
    best = {}
    for _ in range(args.repeats):
        for name, command in commands.items():
            begin = time.perf_counter()
            subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            best[name] = min(best.get(name, 1e9), time.perf_counter() - begin)
    for name, seconds in best.items():
        print(f"{name:<40} {seconds:7.3f} s {seconds / best['python -c pass']:8.1f}")


if __name__ == "__main__":
    main()
