"""Correct the embeddings of a checkpoint file: the work of ``maskplugins correct-embeddings``."""

import argparse
import os
from typing import Any, Dict, Tuple

import torch

from ..checkpoints import read_checkpoint
from ..compat import load_dictionary
from ..errors import CheckpointError, UsageError, one_line
from ..files import replacing
from .checkpoint import choose_rows, correct_checkpoint, find_embedding, option_of, shares_of
from .correct import ReplacementRates


def rewrite(args: argparse.Namespace, report: Dict[str, Any]) -> None:
    """Read ``args.input``, correct it, write ``args.output`` and print what was done; the figures go to ``report``."""
    state = read_checkpoint(args.input)
    try:
        lines = _correct(state, args, report)
    except CheckpointError as error:
        raise error.at(args.input) from error
    except UsageError:
        raise
    except Exception as error:  # foreign checkpoints may hold tensors and options of any kind
        raise UsageError(f"{args.input}: can't read its tensors and options: {one_line(error, 200)}") from None
    with replacing(args.output, also=(RuntimeError,)) as temporary, open(temporary, "wb") as file:
        torch.save(state, file)
    print("\n".join(lines + [f"wrote {args.output}"]))
    report["output"] = args.output


def _correct(state: Any, args: argparse.Namespace, report: Dict[str, Any]) -> list:
    total = len(state["model"][find_embedding(state["model"])])
    shares, source = _choose_shares(state, args)
    mask, found = _find_mask(state, args, total)
    rows = choose_rows(total, mask, args.pad_index, args.include_specials, args.include_mask)
    done = correct_checkpoint(state, shares, mask, rows, args.pad_index, args.head)
    report.update(input=args.input, rates={**shares._asdict(), "mask": shares.mask}, rates_from=source)
    report.update(mask_index=mask, mask_index_from=found, rows=done.rows, rows_of=done.total)
    report.update(mean_norm_before=done.before, mean_norm_after=done.after, output_projection=done.head)
    lines = [
        f"rates: {shares.selected:.4g} of the tokens corrupted, of these {shares.mask:.4g} <mask>, "
        f"{shares.random:.4g} random, {shares.same:.4g} left the same ({source})",
        f"<mask> is row {mask} ({found})",
        f"corrected {done.rows} of {done.total} rows, mean norm {done.before:.4f} -> {done.after:.4f}",
        f"output projection: {done.head}",
    ]
    if done.head.startswith("untied:"):
        lines.append(
            "fine-tune with --untie-weights-roberta: a tied model would load the output projection over the embedding, "
            "and undo the correction"
        )
    return lines


def _choose_shares(state: Any, args: argparse.Namespace) -> Tuple[ReplacementRates, str]:
    given = (args.mask_prob, args.random_token_prob, args.leave_unmasked_prob)
    read = None if None not in given else shares_of(state)
    task = option_of(state, "task", "_name") or option_of(state, "task", "task")
    if read is None and args.mask_prob is None:
        raise CheckpointError(f"its task, {task}, records no masking rates: give --mask-prob")
    values = [new if new is not None else old for new, old in zip(given, read or ReplacementRates(0.0))]
    source = f"of --task {task} in the checkpoint" if read is not None else "from the command line"
    if read is not None and any(value is not None for value in given):
        source += ", overridden from the command line"
    return ReplacementRates(*values).check(), source


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
