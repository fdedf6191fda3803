"""``maskplugins variance CHECKPOINT DATA``: the gradient's variance by masker and rate, split into data and mask term."""

import argparse
import re

from ..cli import STDOUT, check_outputs, reporting, to_json
from ..errors import UsageError
from ..files import write_file

EXAMPLE = """example:
  maskplugins variance checkpoints/checkpoint_last.pt data-bin --maskers uniform mapnet --rates 0.15 0.4 \\
      --rows 64 --masks 8 --png variance.png
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", help="of --task decoupled_mlm; of --criterion mapnet for masker mapnet")
    parser.add_argument("data", help="data directory")
    parser.add_argument("--split", default="train", help="split of DATA to draw rows from (default: train)")
    parser.add_argument(
        "--maskers",
        nargs="+",
        default=["uniform"],
        help="uniform, whole_word, span, pmi, ...; mapnet, or mapnet@EPS with another uniform share than the run's",
    )
    parser.add_argument("--rates", nargs="+", type=float, help="corruption and prediction rates (default: the run's)")
    parser.add_argument("--rows", type=int, default=64, help="rows, a multiple of --groups (default: 64)")
    parser.add_argument("--masks", type=int, default=8, help="masks of each row, 2 or more (default: 8)")
    parser.add_argument("--groups", type=int, default=16, help="independent groups of rows, for the intervals (16)")
    parser.add_argument("--params", metavar="REGEX", default="", help="parameters whose name it matches (default: all)")
    parser.add_argument("--png", metavar="FILE", help="also draw the terms")
    parser.add_argument(
        "--json",
        metavar="FILE",
        nargs="?",
        const=STDOUT,
        help="also write the figures; without FILE print one JSON object and nothing else, for scripts",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the rows and masks (default: 1)")
    parser.add_argument("--cpu", action="store_true", help="don't use a GPU")
    parser.add_argument("--bpe", help="tokenizer, for maskers that know words (default: the checkpoint's)")
    parser.add_argument("--sentencepiece-model", help="model file, for --bpe sentencepiece")
    parser.add_argument("--pmi-vocab", help="list of phrases, for masker pmi (default: the checkpoint's)")


def run(args: argparse.Namespace) -> None:
    for name, lowest in (("rows", 4), ("masks", 2), ("groups", 2)):
        if getattr(args, name) < lowest:
            raise UsageError(f"--{name} must be at least {lowest}, got {getattr(args, name)}")
    if args.rows % args.groups or args.rows < 2 * args.groups:
        raise UsageError(f"--rows must be a multiple of --groups, {args.groups}, and hold 2 rows a group, got {args.rows}")
    for rate in args.rates or []:
        if not 0 < rate <= 1:
            raise UsageError(f"--rates must lie in (0, 1], got {rate:g}")
    try:
        re.compile(args.params)
    except re.error as error:
        raise UsageError(f"--params {args.params}: no regular expression: {error}")
    check_outputs({"--png": args.png, "--json": args.json}, args.checkpoint)
    from ..checkpoints import require_checkpoint
    from .gradients import compute

    require_checkpoint(args.checkpoint)
    with reporting(args.json == STDOUT) as report:
        compute(args, report)
        if args.json and args.json != STDOUT:
            write_file(args.json, f"{to_json(report)}\n".encode())
            print(f"wrote {args.json}")
