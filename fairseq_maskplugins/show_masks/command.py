"""``maskplugins show-masks DATA``: print rows of a data directory as training would mask them, and what was measured."""

import argparse
import os
import shlex
import sys
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import torch
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.registry import REGISTRIES
from omegaconf import OmegaConf

from .. import plugins  # noqa: F401
from ..cli import add_json_option, check_outputs, reporting
from ..decoupled_mlm.config import build_config
from ..decoupled_mlm.plan import Planner, select
from ..decoupled_mlm.rates import Rates
from ..decoupled_mlm.sample import PLAN_KEY
from ..decoupled_mlm.task import DecoupledMLMTask
from ..errors import UsageError
from ..files import write_file
from ..maskers import MASKERS, build_masker
from ..rng import SequenceDraws
from .measure import RANDOM, Token, Totals, classify, describe_totals, histogram, run_lengths
from .page import render_page
from .proposals import check_dictionary, load_proposer, propose_rows
from .shade import render_section, render_weights
from .terminal import render_legend, render_row, render_totals
from .texts import entry_texts

EXAMPLE = """examples:
  maskplugins show-masks data-bin --mask-prob 0.4
  maskplugins show-masks data-bin --masker span --bpe sentencepiece --sentencepiece-model sp.model --html masks.html
"""
BATCH, MAX_RUN = 128, 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    own = parser.add_argument_group("show-masks")
    own.add_argument("--split", default="valid", help="split of DATA to read (default: valid)")
    own.add_argument("--rows", type=int, default=5, help="sequences to print, 0 or more (default: 5)")
    own.add_argument("--measure", type=int, default=1000, help="sequences to measure, at least 1 (default: 1000)")
    own.add_argument("--epoch", type=int, default=1, help="epoch whose masks are drawn, 1 or more (default: 1)")
    own.add_argument("--update", type=int, default=0, help="update number, for rate schedules (default: 0)")
    own.add_argument("--html", metavar="FILE", help="also write a page with the sequences, the figures and plots")
    own.add_argument("--checkpoint", metavar="FILE", help="of --criterion mapnet: also show what its proposer would mask")
    add_json_option(own)
    own.add_argument("--seed", type=int, default=1, help="as for fairseq-train (default: 1)")
    own.add_argument("--max-update", type=int, default=0, help="as for fairseq-train: where rate schedules end")
    bpe = parser.add_argument_group("the tokenizer of the data, as for fairseq-train")
    bpe.add_argument("--bpe", choices=sorted(REGISTRIES["bpe"]["registry"]))
    for dataclass in REGISTRIES["bpe"]["dataclass_registry"].values():
        instance = dataclass()
        for name in instance._get_all_attributes():  # a model is required only by the --bpe that is chosen
            if instance._get_default(name) == "???":
                setattr(instance, name, None)
        gen_parser_from_dataclass(_Optional(bpe), instance)
    task = parser.add_argument_group("the options of --task decoupled_mlm")
    gen_parser_from_dataclass(task, build_config()())
    parser.set_defaults(tokens_per_sample=None)  # the checkpoint's, where there is one


class _Optional:
    """An argument group that requires nothing."""

    def __init__(self, group: Any):
        self.group = group

    def add_argument(self, *names: str, **kwargs: Any) -> None:
        self.group.add_argument(*names, **{key: value for key, value in kwargs.items() if key != "required"})


def run(args: argparse.Namespace) -> None:
    for name, lowest in (("rows", 0), ("measure", 1), ("epoch", 1), ("update", 0)):
        if not lowest <= getattr(args, name) < 2**31:
            rule = f"at least {lowest}" if getattr(args, name) < lowest else "below 2^31"
            raise UsageError(f"--{name} must be {rule}, got {str(getattr(args, name))[:30]}")
    check_outputs({"--html": args.html}, args.checkpoint)
    with reporting(args.json) as report:
        _show(args, report)


def _show(args: argparse.Namespace, report: Dict[str, Any]) -> None:
    loaded = load_proposer(args.checkpoint, args.data) if args.checkpoint else None
    if args.tokens_per_sample is None:
        args.tokens_per_sample = (loaded.task.cfg if loaded else build_config()()).tokens_per_sample
    task = DecoupledMLMTask.setup_task(_task_config(args))
    if loaded:
        check_dictionary(loaded, task, args.checkpoint, args.data)
    # of several directories an epoch of training reads one; validation always reads the first
    task.load_dataset(args.split, epoch=args.epoch if args.split.startswith("train") else 1)
    dataset = task.datasets[args.split]
    dataset.set_epoch(args.epoch)
    rates = task.schedule.at(args.update)
    texts = entry_texts(task.dictionary.symbols, task.planner.vocabulary)
    # spread over the split, the same for the same numbers
    indices = np.unique(np.linspace(0, len(dataset) - 1, min(args.measure, len(dataset))).round().astype(int))

    totals, rows = Totals(), []
    for batch in _batches(indices):
        sample = dataset.collater([dataset[int(index)] for index in batch])
        shown = max(0, args.rows - len(rows))
        rows += _read_batch(task, sample, rates, totals, texts, shown, SequenceDraws(args.seed, args.epoch, batch))
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print(f"{render_legend(colour)}\n")
    for index, copies in zip(indices, rows):
        for number, tokens in enumerate(copies):
            name = f"sequence {index}" + (f", copy {number + 1} of {len(copies)}" if len(copies) > 1 else "")
            print(f"{name}: {render_row(tokens, colour)}\n")
    print("\n".join(render_totals(totals, rates.corruption, rates.prediction)))
    report.update(data=args.data, split=args.split, masker=task.masker_name, epoch=args.epoch, update=args.update)
    report.update(tokens_per_sample=task.cfg.tokens_per_sample, **describe_totals(totals, rates.corruption, rates.prediction))
    proposals = propose_rows(loaded, task, dataset, indices[: args.rows], texts) if loaded else []
    report["proposals"] = [{"row": index, "words": words} for index, words in zip(indices, proposals)]
    for index, words in zip(indices, proposals):
        print(f"\nproposal for sequence {index}, relative to uniform: {render_weights(words)}")
    if args.html:
        runs, left_out = _compare(task, dataset, indices, rates, args)
        title = f"Masks of {args.data}, {args.split}: --masker {task.masker_name}"
        more = render_section(proposals, args.checkpoint) if args.checkpoint else ""
        page = render_page(title, _command(), rows, totals, (rates.corruption, rates.prediction), runs, left_out, more)
        write_file(args.html, page.encode("utf-8", errors="backslashreplace"))
        print(f"\nwrote {args.html}")


def _task_config(args: argparse.Namespace) -> Any:
    cfg = build_config().from_namespace(args)
    cfg.seed, cfg.max_update, cfg.bpe_config = args.seed, args.max_update, None
    for name in cfg.__dataclass_fields__:  # values of parts that are not asked here
        if str(getattr(cfg, name, "")).startswith("${"):
            setattr(cfg, name, None)
    if args.bpe is not None:
        dataclass = REGISTRIES["bpe"]["dataclass_registry"].get(args.bpe)
        if dataclass is None:
            cfg.bpe_config = args.bpe
        else:
            values = {k: getattr(args, k) for k in dataclass.__dataclass_fields__ if not k.startswith("_")}
            for name, value in values.items():
                if value is None and dataclass()._get_default(name) == "???":
                    raise UsageError(f"--bpe {args.bpe} needs --{name.replace('_', '-')}")
            cfg.bpe_config = OmegaConf.create({"_name": args.bpe, **values})
    return cfg


def _batches(indices: np.ndarray) -> List[np.ndarray]:
    return [indices[begin : begin + BATCH] for begin in range(0, len(indices), BATCH)]


def _read_batch(
    task: Any, sample: Dict[str, Any], rates: Rates, totals: Totals, texts: List[str], shown: int, draws: SequenceDraws
) -> List[List[List[Token]]]:
    """Count a batch, and give its first rows as copies of tokens."""
    plan = sample[PLAN_KEY]
    corrupted, predicted = (part.flatten(0, 1).numpy() for part in select(plan["depth"], plan["count"], rates))
    masked = task.mask_batch(sample, rates)
    tokens, source = masked["tokens"].numpy(), masked["net_input"]["src_tokens"].numpy()
    states = classify(tokens, source, corrupted, task.mask_idx)
    starts, maskable = task.planner.find_units(sample["net_input"]["src_tokens"].numpy(), draws)
    totals.add(states, predicted, maskable, starts, rates.copies)
    pad = task.dictionary.pad()

    def token_at(line: int, t: int) -> Token:
        row, text, state = line // rates.copies, texts[tokens[line, t]], int(states[line, t])
        if t > 0 and not maskable[row, t - 1] and not text.startswith(" "):
            text = " " + text  # the first word of a line has no mark in GPT-2's BPE
        became = texts[source[line, t]] if state == RANDOM else ""
        return Token(text, state, bool(predicted[line, t]), became, bool(starts[row, t]), not maskable[row, t])

    def tokens_of(line: int) -> List[Token]:
        return [token_at(line, t) for t in np.flatnonzero(tokens[line] != pad)]

    return [[tokens_of(row * rates.copies + copy) for copy in range(rates.copies)] for row in range(min(shown, len(maskable)))]


def _compare(
    task: Any, dataset: Any, indices: np.ndarray, rates: Rates, args: argparse.Namespace
) -> Tuple[Dict[str, List[float]], Dict[str, str]]:
    """Shares of the run lengths for every masker that these options can build, and why others can't be."""
    cfg, runs, left_out = task.cfg, {}, {}
    for name in sorted(MASKERS, key=lambda other: other != task.masker_name):
        merge: Tuple[int, float] = (1, 0.0)
        try:
            masker = build_masker(name, cfg, task.planner.vocabulary)
        except UsageError as error:
            left_out[name] = error.message
            continue
        if masker.can_merge and name == task.masker_name:
            merge = (cfg.mask_multiple_length, cfg.mask_stdev)
        planner = Planner(masker, cfg.mask_budget, 0.0, 0.0, *merge)
        found = []
        for batch in _batches(indices):
            tokens = dataset.collater([dataset[int(index)] for index in batch])["net_input"]["src_tokens"].numpy()
            plan = planner.draw(tokens, SequenceDraws(args.seed, args.epoch, batch))
            one = Rates(rates.corruption, rates.corruption)
            corrupted = select(torch.from_numpy(plan.depth), torch.from_numpy(plan.count), one)[0][:, 0]
            found.append(run_lengths(corrupted.numpy()))
        counts = histogram(np.concatenate(found), MAX_RUN)
        runs[name] = (counts / max(1, counts.sum())).tolist()
    return runs, left_out


def _command(arguments: Optional[List[str]] = None) -> str:
    return "maskplugins " + " ".join(map(shlex.quote, sys.argv[1:] if arguments is None else arguments))
