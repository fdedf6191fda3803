"""Fuzz the parsers with atheris, which watches the lines that an input reaches.

    python tests/hostile/fuzz.py [--seconds 60] [PARSER ...]

Without names, all of them in one process, each input to one of them. An input that breaks a parser is written to the
working directory and its path printed; put it into ``regressions/`` under ``PARSER-what.bin``.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import atheris

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
with atheris.instrument_imports(include=["fairseq_maskplugins"]):
    from parsers import PARSERS, SEEDS

REGRESSIONS = Path(__file__).resolve().parent / "regressions"


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=int, default=60)
    options.add_argument("parsers", nargs="*", metavar="PARSER", help=f"of {', '.join(PARSERS)}")
    given = options.parse_args()
    names = given.parsers or list(PARSERS)

    def one_input(data):
        # the last byte chooses: mutations of the beginning stay with their parser
        if data:
            PARSERS[names[data[-1] % len(names)]](data[:-1])

    with tempfile.TemporaryDirectory() as corpus, tempfile.TemporaryDirectory() as found:
        for number, name in enumerate(names):
            known = [path.read_bytes() for path in sorted(REGRESSIONS.glob(f"{name}-*.bin"))]
            for index, seed in enumerate([*SEEDS[name], *known]):
                with open(os.path.join(corpus, f"{name}-{index}"), "wb") as file:
                    file.write(seed + bytes([number]))
        limits = [f"-max_total_time={given.seconds}", "-timeout=300", "-rss_limit_mb=4096", "-max_len=8192"]
        flags = ["-close_fd_mask=1", f"-artifact_prefix={found}/"]
        atheris.Setup([sys.argv[0], *limits, *flags, corpus], one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
