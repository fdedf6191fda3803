"""``maskplugins pmi``: build a PMI vocabulary, and look at one."""

import argparse
import sys
import tempfile
from typing import Any, Optional

from ..cli import LazyParser, check_outputs
from ..errors import UsageError
from .build import DEFAULT_SIZE, ENGINES, build_list, count_by_length, write_list
from .score import SCORES
from .text import find_files
from .words import MODES, WordSplitter

EXAMPLE = """examples:
  maskplugins pmi build train.txt --output phrases.txt --size 10000
  maskplugins pmi stats --help
"""
BUILD = """examples:
  maskplugins pmi build train.txt --output phrases.txt --size 10000
  maskplugins pmi build 'corpus/*.gz' --words sentencepiece --sentencepiece-model sp.model --coverage 0.4 --output phrases.gz
"""
STATS = """examples:
  maskplugins pmi stats phrases.txt
  maskplugins pmi stats phrases.txt data-bin --masker uniform pmi --bpe sentencepiece --sentencepiece-model sp.model
  maskplugins pmi stats phrases.txt --text train.txt --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=LazyParser)
    summary = "count the n-grams of a text, score them and write the best as a list for --pmi-vocab"
    raw = argparse.RawDescriptionHelpFormatter
    build = actions.add_parser("build", help=summary, description=summary, epilog=BUILD, formatter_class=raw)
    build.set_defaults(action_run=_build)
    build.add_argument(
        "text", nargs="+", help="files, pipes or globs, plain, gzip or zstd, UTF-8, one sentence or paragraph a line; - is stdin"
    )
    build.add_argument("--output", required=True, metavar="FILE", help="the list; compressed where it ends in .gz")
    _add_words(build)
    build.add_argument("--min-count", type=int, default=11, help="least number of occurrences, 1 or more (default: 11)")
    build.add_argument(
        "--size", type=int, help=f"entries, 1 or more (default: {DEFAULT_SIZE}, with --coverage as many as it takes)"
    )
    build.add_argument(
        "--coverage", type=float, help="share of the text's words that must be inside a phrase, in (0, 1]: sets the size"
    )
    build.add_argument(
        "--score", default="pmi", help=f"{' or '.join(SCORES)}: frequency squares the phrase's probability (default: pmi)"
    )
    build.add_argument("--engine", default="duckdb", help=f"{' or '.join(ENGINES)} (default: duckdb)")
    build.add_argument("--memory-limit", default="4GB", help="of DuckDB; what is more goes to disk (default: 4GB)")
    build.add_argument("--temp-dir", default=tempfile.gettempdir(), help="for what goes to disk (default: the system's)")
    build.add_argument("--threads", type=int, help="of DuckDB, 1 or more (default: all cores)")
    build.add_argument("--master", help="of Spark, such as local[2] (default: what spark-submit or its settings say)")
    summary = "entries by length, coverage, and how often whole phrases are masked, by masker and rate"
    stats = actions.add_parser("stats", help=summary, description=summary, epilog=STATS, formatter_class=raw)
    stats.fill = _add_stats


def _add_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--words", default="whitespace", help=f"{', '.join(MODES)} (default: whitespace)")
    parser.add_argument("--sentencepiece-model", metavar="FILE", help="for --words sentencepiece")
    parser.add_argument("--keep-case", action="store_true", help="don't lower-case words")


def _add_stats(parser: argparse.ArgumentParser) -> None:
    """Its options are fairseq's too, which takes seconds to import."""
    from . import stats_command

    stats_command.add_arguments(parser)
    parser.set_defaults(action_run=stats_command.run)


def run(args: argparse.Namespace) -> Optional[int]:
    return args.action_run(args)


def _build(args: argparse.Namespace) -> None:
    check_outputs({"--output": args.output}, *find_files(args.text), args.sentencepiece_model)
    splitter = WordSplitter(args.words, args.keep_case, args.sentencepiece_model)
    if args.master is not None and args.engine != "spark":
        raise UsageError(f"--master is for --engine spark, and --engine is {args.engine}")
    _build_and_write(args, splitter)


def _build_and_write(args: argparse.Namespace, splitter: WordSplitter) -> None:
    built = build_list(
        args.text,
        splitter,
        args.score,
        args.min_count,
        args.size,
        args.coverage,
        args.engine,
        args.memory_limit,
        args.temp_dir,
        args.threads,
        args.master,
        _progress,
    )
    if not built.phrases:
        raise UsageError(f"no phrase occurs {args.min_count} times in {built.words} words: lower --min-count, or give more text")
    write_list(args.output, built.phrases)
    print(f"{args.output}: {len(built.phrases)} phrases from {built.words} words", file=sys.stderr)
    for n, chosen in count_by_length(built.phrases).items():
        print(f"  {n} words: {chosen} of {built.candidates[n]} with {args.min_count} occurrences or more", file=sys.stderr)
    if args.coverage is not None:
        print(f"  {built.covered / built.words:.4f} of the words are inside a phrase", file=sys.stderr)
    if len(built.phrases) < built.size:
        print(
            f"  {built.size - len(built.phrases)} of {built.size} places stay empty: too few candidates of that length",
            file=sys.stderr,
        )


def _progress(total: Optional[int], unit: str, what: str) -> Any:
    from tqdm import tqdm

    # None: silent where standard error is no terminal
    return tqdm(total=total, unit=unit, unit_scale=unit == "B", desc=what, disable=None, leave=False, file=sys.stderr)
