"""``maskplugins fisher``: Fisher information of a checkpoint on a training set, and masks for ChildTuning-D from it."""

import argparse
from typing import List

from ..cli import add_json_option, check_outputs, reporting
from ..errors import UsageError
from . import DEFAULT_RESERVE_P

USAGE = """maskplugins fisher DATA --fisher FILE --mask FILE [options of fairseq-train, such as --restore-file]
       maskplugins fisher select --fisher FILE --reserve-p P --mask FILE [--json]
       maskplugins fisher show --mask FILE [--png FILE] [--json]"""
EXAMPLE = """examples:
  maskplugins fisher data-bin --fisher fisher.safetensors --mask mask.safetensors --restore-file model.pt \\
      --task sentence_prediction --criterion sentence_prediction --num-classes 2 --arch roberta_base
  maskplugins fisher select --fisher fisher.safetensors --reserve-p 0.2 --mask mask.safetensors
"""
SELECT_EXAMPLE = """example:
  maskplugins fisher select --fisher fisher.safetensors --reserve-p 0.2 --mask mask.safetensors
"""
SHOW_EXAMPLE = """example:
  maskplugins fisher show --mask mask.safetensors --png mask.png
"""

READS_USER_DIR = True  # among fairseq's own options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # everything belongs to a parser below, or to fairseq's: options are taken as they are, also before the first
    # positional argument, by a parser for which "-" begins no option
    parser.prefix_chars = "\0"
    parser.usage = USAGE
    parser.add_argument("arguments", nargs="...")


def run(args: argparse.Namespace) -> int:
    first = args.arguments[:1]
    if first == ["select"]:
        return run_select(_parse(_select_parser(), args.arguments[1:]))
    if first == ["show"]:
        return run_show(_parse(_show_parser(), args.arguments[1:]))
    parser = _fisher_parser()
    ours, rest = parser.parse_known_args(args.arguments)
    if ours.max_examples is not None and ours.max_examples < 1:
        raise UsageError(f"--max-examples must be at least 1, got {ours.max_examples}")
    if not ours.fisher and not ours.mask:
        raise UsageError("give --fisher FILE, --mask FILE, or both")
    from . import maskfile
    from .fisher_pass import compute  # fairseq takes seconds to import
    from .options import check_share

    check_share("--reserve-p", ours.reserve_p)
    maskfile.require_safetensors()
    check_outputs({"--fisher": ours.fisher, "--mask": ours.mask})
    return compute(ours, rest)


def _parse(parser: argparse.ArgumentParser, arguments: List[str]) -> argparse.Namespace:
    args = parser.parse_args(arguments)
    return args


def _fisher_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="maskplugins fisher",
        usage=USAGE,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--fisher", metavar="FILE", help="where the Fisher values go (safetensors, float32)")
    parser.add_argument("--mask", metavar="FILE", help="where the mask goes (safetensors, bool)")
    parser.add_argument("--reserve-p", type=float, default=DEFAULT_RESERVE_P, help="share kept, in (0, 1] (0.3)")
    parser.add_argument("--cover", default="all", help="all, layers (the authors'), or a regular expression for names")
    parser.add_argument("--max-examples", type=int, help="a keyed sample of the training set (default: all of it)")
    parser.add_argument("--per-batch", action="store_true", help="square gradients of batches, as the authors do")
    parser.add_argument("--loop", action="store_true", help="one example at a time throughout")
    add_json_option(parser)
    return parser


def _parser(action: str, description: str, example: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=f"maskplugins fisher {action}",
        description=description,
        epilog=example,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _select_parser() -> argparse.ArgumentParser:
    parser = _parser("select", "A mask from Fisher values.", SELECT_EXAMPLE)
    parser.add_argument("--fisher", required=True, metavar="FILE", help="written by 'maskplugins fisher'")
    parser.add_argument("--reserve-p", type=float, required=True, help="share of the covered entries kept, in (0, 1]")
    parser.add_argument("--mask", required=True, metavar="FILE", help="where the mask goes")
    add_json_option(parser)
    return parser


def _show_parser() -> argparse.ArgumentParser:
    parser = _parser("show", "Shares that a mask keeps.", SHOW_EXAMPLE)
    parser.add_argument("--mask", required=True, metavar="FILE", help="mask file")
    parser.add_argument("--png", metavar="FILE", help="where a plot goes")
    add_json_option(parser)
    return parser


def run_select(args: argparse.Namespace) -> int:
    from . import maskfile
    from .options import check_share

    check_share("--reserve-p", args.reserve_p)
    maskfile.require_safetensors()
    check_outputs({"--mask": args.mask}, args.fisher)
    manifest, tensors = maskfile.read(args.fisher, "fisher")
    with reporting(args.json) as report:
        report.update(fisher=args.fisher, **maskfile.write_mask(args.mask, manifest, tensors, args.reserve_p))
    return 0


def run_show(args: argparse.Namespace) -> int:
    from . import maskfile
    from .show import describe_table, format_table, plot, shares

    check_outputs({"--png": args.png}, args.mask)
    manifest, tensors = maskfile.read(args.mask, "mask")
    table = shares(manifest, tensors)
    with reporting(args.json) as report:
        print("\n".join(format_table(table, manifest)))
        if args.png:
            plot(table, manifest, args.png)
            print(f"plot: {args.png}")
        report.update(mask=args.mask, **describe_table(table, manifest))
    return 0
