"""The gradients behind ``maskplugins variance``: one row and one mask at a time."""

import argparse
import math
import re
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import torch

from ..compat import is_inference_copy
from ..decoupled_mlm.criterion import DecoupledMLMCriterion
from ..decoupled_mlm.loading import load_data_sets, load_masked_lm, require_proposer
from ..decoupled_mlm.plan import Planner
from ..decoupled_mlm.rates import Rates
from ..decoupled_mlm.sample import PLAN_KEY
from ..errors import UsageError
from ..files import write_file
from ..mapnet.proposal import draw_pair
from ..maskers import build_masker
from ..rng import SequenceDraws
from .moments import decompose
from .report import Line, render_plot, render_table

Masking = Callable[[Dict[str, Any], Rates, int], Tuple[Dict[str, Any], torch.Tensor]]
Row = Tuple[Any, int]  # its data set and its number there


def compute(args: argparse.Namespace, report: Dict[str, Any]) -> None:
    """Measure, print the table and write the plot; the figures go to ``report``."""
    bpe = None if args.bpe is None else {"_name": args.bpe, "sentencepiece_model": args.sentencepiece_model}
    loaded = load_masked_lm(args.checkpoint, args.data, {"pmi_vocab": args.pmi_vocab}, bpe)
    task = loaded.task
    device = torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
    model, criterion = loaded.model.to(device), loaded.criterion.to(device)
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad and not is_inference_copy(name)]
    chosen = [p for name, p in trained if re.search(args.params, name)]
    if not chosen:
        raise UsageError(f"--params {args.params} matches none of the model's parameters")
    if any(name.split("@")[0] == "mapnet" for name in args.maskers):
        require_proposer(loaded, args.checkpoint, "--maskers mapnet")
    rows = _choose_rows(args, load_data_sets(task, args.data, args.split), model.max_positions())
    rates = [Rates(rate, rate) for rate in args.rates] if args.rates else [task.schedule.start]
    masking = {name: _masking(name, task, model, criterion, args.seed) for name in args.maskers}
    try:
        from tqdm import tqdm
    except ImportError:
        raise UsageError("maskplugins variance needs tqdm: pip install 'fairseq_maskplugins[variance]'") from None
    print(f"{sum(p.numel() for p in chosen)} entries of {len(chosen)} parameters; {args.rows} rows, {args.masks} masks each")
    lines: List[Line] = []
    with tqdm(total=len(rates) * len(masking) * args.rows, unit="rows") as progress:
        for pair in rates:
            for name, mask in masking.items():

                def gradient(row: Row, r: int, mask: Masking = mask, pair: Rates = pair) -> Tuple[torch.Tensor, float]:
                    dataset, index = row
                    sample = dataset.collater([dataset[index]])
                    return _gradient(model, criterion, chosen, *mask(_move(sample, device), pair, r))

                found = decompose(gradient, rows, args.masks, args.groups, lambda: progress.update(1))
                found["loss"] = type(found["loss"])(*(value / math.log(2) for value in found["loss"]))
                lines.append(Line(name, pair.corruption, pair.prediction, found))
    print(render_table(lines))
    report.update(checkpoint=args.checkpoint, data=args.data, split=args.split, rows=args.rows, masks=args.masks)
    report.update(entries=sum(p.numel() for p in chosen), parameters=len(chosen), lines=lines)
    if args.png:
        write_file(args.png, render_plot(lines, f"{args.rows} rows, {args.masks} masks each, 95% intervals"))
        print(f"wrote {args.png}")


def _choose_rows(args: argparse.Namespace, datasets: List[Any], longest: int) -> List[Row]:
    """``--rows`` of all that the model takes, drawn by the seed; a training skips longer ones too."""
    taken = [np.flatnonzero(np.asarray(dataset.sizes) <= longest) for dataset in datasets]
    total = sum(map(len, taken))
    if total < args.rows:
        where = args.split + ("" if total == sum(map(len, datasets)) else " that the model takes")
        raise UsageError(f"--rows must be at most the rows of {where}, {total}, got {args.rows}")
    keys = [SequenceDraws(args.seed, number, rows).bits("variance", 1)[:, 0] for number, rows in enumerate(taken)]
    sources = np.repeat(np.arange(len(datasets)), [len(rows) for rows in taken])
    order, places = np.argsort(np.concatenate(keys))[: args.rows], np.concatenate(taken)
    return [(datasets[sources[i]], int(places[i])) for i in order]


def _masking(name: str, task: Any, model: torch.nn.Module, criterion: Any, seed: int) -> Masking:
    """A function from a row, rates and the mask's number to a masked sample and the weights of its positions."""
    if name.split("@")[0] == "mapnet":
        mix = parse_mix(name)
        return lambda sample, rates, r: _propose(sample, rates, r, task, model, criterion, seed, mix)
    planner = _planner(name, task)

    def mask(sample: Dict[str, Any], rates: Rates, r: int) -> Tuple[Dict[str, Any], torch.Tensor]:
        masked = task.mask_batch({**sample, PLAN_KEY: _plan(planner, sample, seed, r)}, rates)
        return masked, torch.ones(masked["target"].shape, device=masked["target"].device)

    return mask


def _planner(name: str, task: Any) -> Planner:
    """The run's planner with another masker; runs of units (``--mask-multiple-length``) are the run's own masker's."""
    if name == task.masker_name:
        return task.planner
    cfg = task.cfg
    masker = build_masker(name, cfg, task.planner.vocabulary)
    return Planner(masker, cfg.mask_budget, cfg.random_token_prob, cfg.leave_unmasked_prob)


def _plan(planner: Planner, sample: Dict[str, Any], seed: int, r: int) -> Dict[str, Optional[torch.Tensor]]:
    """Plan number ``r`` of a row, what its tokens are replaced by included."""
    tokens = sample["net_input"]["src_tokens"]
    plan = planner.draw(tokens.cpu().numpy(), SequenceDraws(seed, r + 1, sample["id"].cpu().numpy()))
    return {k: None if v is None else torch.from_numpy(v).to(tokens.device) for k, v in plan._asdict().items()}


def parse_mix(name: str) -> Optional[float]:
    """``mapnet@0.5`` to 0.5, ``mapnet`` to None."""
    _, at, text = name.partition("@")
    try:
        mix = float(text) if at else None
    except ValueError:
        mix = -1.0
    if mix is not None and not 0 <= mix <= 1:
        raise UsageError(f"--maskers mapnet@EPS: EPS, the uniform share, must lie in [0, 1], got {text!r}")
    return mix


def _propose(
    sample: Dict[str, Any],
    rates: Rates,
    r: int,
    task: Any,
    model: torch.nn.Module,
    criterion: Any,
    seed: int,
    mix: Optional[float],
) -> Tuple[Dict[str, Any], torch.Tensor]:
    tokens, plan = sample["net_input"]["src_tokens"], _plan(task.planner, sample, seed, r)
    with torch.no_grad():
        log_q = criterion.propose(model, tokens, plan["depth"] <= plan["count"][:, None], mix)
    pair = draw_pair(log_q, (seed, r), sample["id"])
    pair = pair._replace(perturbed=pair.perturbed[:, :1], depth=pair.depth[:, :1])  # independent masks, not pairs
    masked = task.mask_batch({**sample, PLAN_KEY: {**plan, "depth": pair.depth[:, 0]}}, rates)
    predicted = masked["target"].ne(task.dictionary.pad())
    taken = predicted.view(1, 1, masked["copies"], -1).any(2)
    weight = criterion.weigh(log_q, pair, taken, plan["count"]).weight
    return masked, weight[0].expand(predicted.shape)


def _gradient(
    model: torch.nn.Module, criterion: Any, parameters: List[torch.Tensor], sample: Dict[str, Any], weight: torch.Tensor
) -> Tuple[torch.Tensor, float]:
    """Gradient of the mean (weighted) loss over the row's predicted tokens, as one vector, and that loss."""
    with torch.enable_grad():
        loss, selected = DecoupledMLMCriterion.predict(criterion, model, sample)
        loss = (loss * weight[selected].type_as(loss)).mean()
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
    flat = [torch.zeros_like(p).flatten() if g is None else g.flatten() for g, p in zip(found, parameters)]
    return torch.cat(flat).float(), float(loss.detach())


def _move(value: Any, device: torch.device) -> Any:
    if isinstance(value, dict):
        return {key: _move(item, device) for key, item in value.items()}
    return value.to(device) if torch.is_tensor(value) else value
