"""``maskplugins correct-embeddings IN OUT``."""

import argparse
import os
from typing import Any, Dict, Tuple

import torch

from ..checkpoints import read_checkpoint
from ..cli import add_json_option, check_outputs, reporting
from ..compat import load_dictionary
from ..errors import UsageError
from ..files import replacing
from .checkpoint import (
    CheckpointError,
    choose_rows,
    correct_checkpoint,
    find_embedding,
    option_of,
    shares_of,
)
from .correct import Shares


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", metavar="IN", help="checkpoint of a masked language model")
    parser.add_argument("output", metavar="OUT", help="where the corrected checkpoint goes; may not be IN")
    share = dict(type=float, metavar="P", help="in [0, 1] (default: what the checkpoint says)")
    parser.add_argument("--mask-prob", **{**share, "help": "share of tokens that was corrupted, " + share["help"]})
    parser.add_argument("--random-token-prob", **{**share, "help": "share of those made random, " + share["help"]})
    parser.add_argument("--leave-unmasked-prob", **{**share, "help": "share of those left as is, " + share["help"]})
    parser.add_argument(
        "--dict", metavar="FILE", help="dict.txt (default: that of the checkpoint's data, if it exists)"
    )
    parser.add_argument("--mask-index", type=int, help="row of <mask> (default: by dict.txt, else the last row)")
    parser.add_argument("--pad-index", type=int, default=1, help="row of padding, never changed (default: 1)")
    parser.add_argument("--include-specials", action="store_true", help="also correct <s>, </s> and <unk>")
    parser.add_argument("--include-mask", action="store_true", help="also correct the row of <mask>")
    parser.add_argument(
        "--head",
        choices=("untie", "follow"),
        default="untie",
        help="a tied output projection keeps the old embedding (untie, the default) or is corrected with it (follow)",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    check_outputs({"OUT": args.output}, args.input, args.dict)
    state = read_checkpoint(args.input)
    with reporting(args.json) as report:
        try:
            lines = _correct(state, args, report)
        except CheckpointError as error:
            raise error.at(args.input) from error
        except UsageError:
            raise
        except Exception as error:  # a tensor of any shape, options of any types
            said = " ".join(str(error).split())[:200]
            raise UsageError(f"{args.input}: its tensors and settings can't be read: {said}") from None
        with replacing(args.output, also=(RuntimeError,)) as temporary:
            torch.save(state, temporary)
        print("\n".join(lines + [f"wrote {args.output}"]))
        report["output"] = args.output


def _correct(state: Any, args: argparse.Namespace, said: Dict[str, Any]) -> list:
    total = len(state["model"][find_embedding(state["model"])])
    shares, source = _choose_shares(state, args)
    mask, found = _find_mask(state, args, total)
    rows = choose_rows(total, mask, args.pad_index, args.include_specials, args.include_mask)
    report = correct_checkpoint(state, shares, mask, rows, args.pad_index, args.head)
    said.update(input=args.input, rates={**shares._asdict(), "mask": shares.mask}, rates_from=source)
    said.update(mask_index=mask, mask_index_from=found, rows=report.rows, rows_of=report.total)
    said.update(mean_norm_before=report.before, mean_norm_after=report.after, output_projection=report.head)
    lines = [
        f"rates: {shares.selected:.4g} of the tokens corrupted, of these {shares.mask:.4g} <mask>, "
        f"{shares.random:.4g} random, {shares.same:.4g} left the same ({source})",
        f"<mask> is row {mask} ({found})",
        f"corrected {report.rows} of {report.total} rows, mean norm {report.before:.4f} -> {report.after:.4f}",
        f"output projection: {report.head}",
    ]
    if report.head.startswith("untied:"):
        lines.append(
            "fine-tune with --user-dir fairseq_maskplugins or --untie-weights-roberta: a tied model of fairseq alone "
            "would load the output projection over the embedding, and undo the correction"
        )
    return lines


def _choose_shares(state: Any, args: argparse.Namespace) -> Tuple[Shares, str]:
    given = (args.mask_prob, args.random_token_prob, args.leave_unmasked_prob)
    read = None if None not in given else shares_of(state)
    task = option_of(state, "task", "_name") or option_of(state, "task", "task")
    if read is None and args.mask_prob is None:
        raise CheckpointError(f"its task, {task}, records no masking rates: give --mask-prob")
    values = [new if new is not None else old for new, old in zip(given, read or Shares(0.0))]
    source = f"of --task {task} in the checkpoint" if read is not None else "from the command line"
    if read is not None and any(value is not None for value in given):
        source += ", overridden from the command line"
    return Shares(*values).check(), source


def _find_mask(state: Any, args: argparse.Namespace, total: int) -> Tuple[int, str]:
    if args.mask_index is not None:
        return args.mask_index, "--mask-index"
    data = str(option_of(state, "task", "data") or "").split(os.pathsep)[0]
    path = args.dict or os.path.join(data, "dict.txt")
    if args.dict is None and not (data and os.path.isfile(path)):
        return total - 1, "the last row; dict.txt was not found"
    dictionary = load_dictionary(path)
    mask = dictionary.add_symbol("<mask>")
    if len(dictionary) != total:
        advice = "it is not the model's" if args.dict else "give --dict or --mask-index"
        raise UsageError(
            f"{path}: has {len(dictionary)} entries with <mask>, the embedding of {args.input} has {total} rows: {advice}"
        )
    return mask, path
