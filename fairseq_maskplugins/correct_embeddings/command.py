"""``maskplugins correct-embeddings IN OUT``."""

import argparse

from ..cli import add_json_option, check_outputs, reporting

EXAMPLE = """examples:
  maskplugins correct-embeddings checkpoints/checkpoint_best.pt corrected.pt
  maskplugins correct-embeddings model.pt corrected.pt --mask-prob 0.15 --random-token-prob 0.1 --leave-unmasked-prob 0.1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="IN", help="checkpoint of a masked language model")
    parser.add_argument("output", metavar="OUT", help="where the corrected checkpoint goes; may not be IN")
    share = dict(type=float, metavar="P", help="in [0, 1] (default: what the checkpoint says)")
    parser.add_argument("--mask-prob", **{**share, "help": "fraction of tokens that was corrupted, " + share["help"]})
    parser.add_argument("--random-token-prob", **{**share, "help": "fraction of those made random, " + share["help"]})
    parser.add_argument("--leave-unmasked-prob", **{**share, "help": "fraction of those left as is, " + share["help"]})
    parser.add_argument("--dict", metavar="FILE", help="dict.txt (default: that of the checkpoint's data, if it exists)")
    parser.add_argument("--mask-index", type=int, help="row of <mask> (default: by dict.txt, else the last row)")
    parser.add_argument("--pad-index", type=int, default=1, help="row of padding, never changed (default: 1)")
    parser.add_argument("--include-specials", action="store_true", help="also correct <s>, </s> and <unk>")
    parser.add_argument("--include-mask", action="store_true", help="also correct the row of <mask>")
    parser.add_argument(
        "--head",
        choices=("follow", "untie"),
        default="follow",
        help="a tied output projection is corrected with the embedding and stays tied (follow, the default), or keeps the "
        "old embedding, in a model that is then untied (untie)",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    check_outputs({"OUT": args.output}, args.input, args.dict)
    from .rewrite import rewrite

    with reporting(args.json) as report:
        rewrite(args, report)
