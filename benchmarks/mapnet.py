"""Training update with ``mapnet`` against ``decoupled_mlm`` on as many masked rows.

    python benchmarks/mapnet.py [--rows 16] [--length 128] [--layers 12] [--vocabulary 32000] [--rounds 5] [--device cpu]

The plain update masks all rows once, MAP-Net's half of them twice. An update is what the training step does: masking, the
proposer, one pass of the model, backward, Adam. Proposer at its defaults; RoBERTa-base at theirs. Times are side by side
in one process.
"""

import argparse
from types import SimpleNamespace

import numpy as np
import torch
from bench_models import Task, build, describe, make_rows, median, ratio, time_side_by_side
from fairseq.criterions import CRITERION_REGISTRY

from fairseq_maskplugins.decoupled_mlm.plan import Planner
from fairseq_maskplugins.decoupled_mlm.rates import Rates
from fairseq_maskplugins.decoupled_mlm.sample import PLAN_KEY, mask_sample
from fairseq_maskplugins.mapnet.criterion import MapNetCriterionConfig
from fairseq_maskplugins.maskers import MaskerConfig, UniformMasker
from fairseq_maskplugins.rng import SequenceDraws
from fairseq_maskplugins.vocabulary import Vocabulary


class MaskingTask(Task):
    """A task as far as the criterions go: dictionary, vocabulary, masking."""

    def __init__(self, words):
        super().__init__(words)
        self.dictionary = self.target_dictionary = self.source_dictionary
        maskable = np.arange(len(self.dictionary)) >= 4
        maskable[self.mask_idx] = False
        ids = np.flatnonzero(maskable)
        self.vocabulary = Vocabulary(1, 0, 2, self.mask_idx, maskable, ids)
        self.planner = Planner(UniformMasker(MaskerConfig(), self.vocabulary))

    def mask_batch(self, sample, rates):
        return mask_sample(sample, rates, self.dictionary.pad(), self.mask_idx)


def make_sample(task, rows, length, device):
    tokens = make_rows(task, rows, length, device)
    plan = task.planner.draw(tokens.cpu().numpy(), SequenceDraws(1, 1, np.arange(rows)))
    plan = {name: None if value is None else torch.from_numpy(value).to(device) for name, value in plan._asdict().items()}
    lengths = torch.full((rows,), length, device=device)
    ids = torch.arange(rows, device=device)
    net_input = {"src_tokens": tokens, "src_lengths": lengths}
    return {"id": ids, "net_input": net_input, "nsentences": rows, "ntokens": rows * length, PLAN_KEY: plan}


def make_step(name, args, task, device):
    options = dict(encoder_layers=args.layers, encoder_embed_dim=args.width, encoder_ffn_embed_dim=4 * args.width)
    model = build("roberta_base", task, device, max_positions=args.length, **options)
    cfg = SimpleNamespace(**{f: getattr(MapNetCriterionConfig, f) for f in MapNetCriterionConfig.__dataclass_fields__})
    cfg.seed, cfg.ddp_backend = 1, "legacy_ddp"
    criterion = CRITERION_REGISTRY[name](cfg, task).to(device)
    parameters = [*model.parameters(), *criterion.parameters()]
    adam = torch.optim.Adam(parameters, lr=1e-4)
    sample = make_sample(task, args.rows if name == "decoupled_mlm" else args.rows // 2, args.length, device)
    rates = Rates(args.rate, args.rate)

    def step():
        adam.zero_grad()
        if name == "mapnet":
            loss, _, _ = criterion(model, {**sample, "rates": rates, "update_num": 10**6})
        else:
            loss, _, _ = criterion(model, task.mask_batch(sample, rates))
        loss.backward()
        adam.step()

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=16, help="masked rows of an update, an even number")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rate", type=float, default=0.4)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    device, task = torch.device(args.device), MaskingTask(args.vocabulary)
    steps = {name: make_step(name, args, task, device) for name in ("decoupled_mlm", "mapnet")}
    times = time_side_by_side(steps, args.rounds, device)
    print(
        f"{args.layers} layers of {args.width}, {args.rows} masked rows of {args.length}, rate {args.rate}, vocabulary "
        f"{args.vocabulary}, {args.rounds} rounds; {describe(device)}\n"
    )
    print("| plain | MAP-Net | MAP-Net / plain |\n|---|---|---|")
    milliseconds = (f"{1e3 * median(times[name]):.0f} ms" for name in steps)
    print(f"| {' | '.join(milliseconds)} | {ratio(times, 'mapnet', 'decoupled_mlm'):.2f} |")


if __name__ == "__main__":
    main()
