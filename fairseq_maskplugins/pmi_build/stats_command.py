"""``maskplugins pmi stats``: how a list fits a text, and how often its phrases are masked whole."""

import argparse
import sys
from dataclasses import fields, make_dataclass
from typing import Any, Dict, List

import numpy as np
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass

from .. import plugins  # noqa: F401
from ..cli import add_json_option, reporting
from ..decoupled_mlm.blocks import pad_rows
from ..decoupled_mlm.config import copy_field
from ..decoupled_mlm.plan import BUDGETS, Planner
from ..errors import UsageError
from ..maskers.base import MASKERS, build_masker
from ..maskers.pmi import UNITS
from .stats import Measured, count_covered, count_masked, find_occurrences, read_list, uniform_probability
from .stats_rows import Rows, bpe_configs, read_data, read_text
from .words import MODES

BATCH = 256
BASE_RATE = 0.15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("list", metavar="LIST", help="phrases, one a line, maybe with score and count after tabs")
    parser.add_argument("data", nargs="?", metavar="DATA", help="directory that fairseq-preprocess wrote")
    parser.add_argument("--split", default="train", help="of DATA (default: train)")
    parser.add_argument(
        "--text", nargs="+", metavar="FILE", help="measure on text instead; every word is a token, a line is a row"
    )
    parser.add_argument(
        "--words",
        default="whitespace",
        help=f"of --text, as for pmi build: {', '.join(MODES)} (with --sentencepiece-model) (default: whitespace)",
    )
    parser.add_argument("--rows", type=int, default=2000, help="how many, evenly spaced; 0 for all (default: 2000)")
    parser.add_argument("--tokens-per-sample", type=int, default=512, help="longest row, <s> included (default: 512)")
    parser.add_argument("--sample-break-mode", default="none", help="of DATA, as in fairseq-train (default: none)")
    parser.add_argument("--keep-case", action="store_true", help="tell upper from lower case")
    parser.add_argument("--masker", nargs="+", default=["uniform"], help="maskers to measure (default: uniform)")
    parser.add_argument("--mask-budget", help=f"{' or '.join(BUDGETS)} (default: the masker's own)")
    rates = [0.15, 0.2, 0.3, 0.4, 0.5]
    parser.add_argument("--rates", type=float, nargs="+", default=rates, help=f"in (0, 1] (default: {rates})")
    parser.add_argument("--epochs", type=int, default=5, help="how many masks are drawn for each row (default: 5)")
    parser.add_argument("--seed", type=int, default=1)
    add_json_option(parser)
    parser.add_argument("--bpe", help="that DATA was encoded with; its own options follow as in fairseq-train")
    for entry in MASKERS.values():
        options = [(f.name, f.type, copy_field(f)) for f in fields(entry.config)]
        _borrow(parser, make_dataclass("MaskerOptions", options, bases=(FairseqDataclass,)))
    for config in bpe_configs().values():
        _borrow(parser, config)


def _borrow(parser: argparse.ArgumentParser, config: type) -> None:
    """Add a dataclass's options, except those that are there already (tokenizers share some)."""
    own = argparse.ArgumentParser(add_help=False)
    gen_parser_from_dataclass(own, config())
    for action in own._actions:
        if not set(action.option_strings) & set(parser._option_string_actions):
            parser._add_action(action)


def run(args: argparse.Namespace) -> None:
    for name, least in (("rows", 0), ("epochs", 1), ("tokens_per_sample", 2)):
        if getattr(args, name) < least:
            raise UsageError(f"--{name.replace('_', '-')} must be at least {least}, got {getattr(args, name)}")
    for rate in args.rates:
        if not 0.0 < rate <= 1.0:
            raise UsageError(f"--rates must lie in (0, 1], got {rate:g}")
    if args.mask_budget is not None and args.mask_budget not in BUDGETS:
        raise UsageError(f"--mask-budget must be one of {', '.join(BUDGETS)}, got {args.mask_budget!r}")
    if args.pmi_unit not in UNITS:
        raise UsageError(f"--pmi-unit must be {' or '.join(UNITS)}, got {args.pmi_unit!r}")
    with reporting(args.json) as report:
        _report(args, report)


def _report(args: argparse.Namespace, report: Dict[str, Any]) -> None:
    """Measure and print; the figures go to ``report`` too."""
    phrases = read_list(args.list, args.keep_case)
    lengths: Dict[int, int] = {}
    for phrase in phrases:
        lengths[phrase.count(" ") + 1] = lengths.get(phrase.count(" ") + 1, 0) + 1
    print(f"{args.list}: {len(phrases)} phrases")
    for n, number in sorted(lengths.items()):
        print(f"  {n} words: {number} ({number / len(phrases):.1%})")
    report.update(list=args.list, phrases=len(phrases), by_words=dict(sorted(lengths.items())))
    if args.data is None and args.text is None:
        return
    if args.data is not None and args.text is not None:
        raise UsageError("DATA and --text can't go together: give one")
    if args.pmi_vocab is None:
        args.pmi_vocab = args.list
    rows = read_text(args) if args.text is not None else read_data(args)
    # a masker that can't be built is told before anything is measured
    planners = {name: Planner(build_masker(name, args, rows.vocabulary), args.mask_budget) for name in args.masker}
    found = find_occurrences(rows.words, phrases)
    covered, total = count_covered(rows.words, found)
    tokens = sum(map(len, rows.tokens))
    print(f"{len(rows.tokens)} rows, {tokens} tokens, {total} words: {len(found)} phrases")
    print(f"  coverage: {covered / max(1, total):.4f} of the words are inside a phrase")
    report.update(rows=len(rows.tokens), tokens=tokens, words=total, found=len(found), coverage=covered / max(1, total))
    if not found:
        raise UsageError(f"{args.list}: none of its phrases is in these rows, so there is nothing to mask")
    _measure(args, rows, found, planners, report)


def _measure(args: argparse.Namespace, rows: Rows, found: List, planners: Dict[str, Planner], report: Dict[str, Any]) -> None:
    maskable = [int(np.count_nonzero(rows.vocabulary.maskable[row])) for row in rows.tokens]
    lengths = np.array([one.end - one.first for one in found])
    base = uniform_probability(lengths, np.array([maskable[one.row] for one in found]), BASE_RATE)
    print(
        f"probability that a whole phrase is masked, from {args.epochs * len(found)} draws, and its ratio to uniform "
        f"masking at {BASE_RATE:.0%} ({base:.3g}, computed)"
    )
    print("\t".join(["rate", *(f"{name}\tratio" for name in planners)]))
    measured = [_count(name, planner, args.rates, args, rows, found) for name, planner in planners.items()]
    report.update(draws=args.epochs * len(found), base_rate=BASE_RATE, base_probability=base, masked_whole=[])
    for i, rate in enumerate(args.rates):
        cells = []
        for one in measured:
            probability, ratio = one.probability(i), one.probability(i) / base if base else np.nan
            cells.append(f"{probability:.5f}\t{ratio:.2f}")
            report["masked_whole"].append({"masker": one.masker, "rate": rate, "probability": probability, "ratio": ratio})
        print("\t".join([f"{rate:g}", *cells]))


def _count(name: str, planner: Planner, rates: List[float], args: argparse.Namespace, rows: Rows, found: List) -> Measured:
    from tqdm import tqdm

    masked = np.zeros(len(rates), dtype=np.int64)
    at = 0
    for begin in tqdm(range(0, len(rows.tokens), BATCH), desc=name, disable=None, leave=False, file=sys.stderr):
        here = []
        while at < len(found) and found[at].row < begin + BATCH:
            here.append(found[at]._replace(row=found[at].row - begin))
            at += 1
        batch = rows.tokens[begin : begin + BATCH]
        tokens = pad_rows(batch, rows.vocabulary.pad, rows.vocabulary.bos)
        ids = np.arange(begin, begin + len(batch))
        masked += count_masked(planner, tokens, ids, here, rates, args.seed, args.epochs)
    return Measured(name, rates, masked, args.epochs * len(found))
