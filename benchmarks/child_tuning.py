"""The optimizer's step with ChildTuning, beside its peers in one process, and Fisher values vectorised against a loop.

    python benchmarks/child_tuning.py [--layers 12] [--vocabulary 50265] [--repeats 5] [--threads N]

The model is that of a RoBERTa of width 768 (12 layers and 50,265 words: 124M parameters). Contestants take turns, so
that a busy machine slows all of them; the smallest time of each counts, and ratios are of these. CPU time is reported
beside it: it does not see what else runs, but counts threads that wait for each other.
"""

import argparse
import os
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from fairseq.optim.adam import Adam  # noqa: E402

from fairseq_maskplugins.child_tuning.fisher import Fisher  # noqa: E402
from fairseq_maskplugins.child_tuning.masks import FixedMask, KeyedMask  # noqa: E402
from fairseq_maskplugins.child_tuning.optim import ChildAdam, build  # noqa: E402
from fairseq_maskplugins.child_tuning.options import build_masking  # noqa: E402
from fairseq_maskplugins.compat import has_fused_adam  # noqa: E402

SHARE = 0.3
OPTIONS = dict(lr=1e-5, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01)


class AuthorsAdam(Adam):
    """The authors' way: a Bernoulli tensor as large as each gradient, at each step."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                draw = torch.distributions.Bernoulli(torch.full_like(p.grad, SHARE))
                p.grad.mul_(draw.sample() / SHARE)
        super().step()


def build_parameters(layers, vocabulary, device):
    shapes = [(vocabulary, 768), (514, 768)]
    for _ in range(layers):
        shapes += [(768, 768)] * 4 + [(3072, 768), (768, 3072), (3072,)] + [(768,)] * 9
    params = [torch.nn.Parameter(torch.randn(shape, device=device) * 0.02) for shape in shapes]
    for p in params:
        p.grad = torch.randn_like(p) * 1e-3
    return params


def contestants(params):
    def keyed(mask_target, fused):
        masking = build_masking("F", SHARE, mask_target, False, None)
        return lambda: build(ChildAdam, params, lambda positions: KeyedMask(1, SHARE, positions.total), masking, fused, **OPTIONS)

    def fixed(fused):
        selected = [torch.rand(p.shape, device=p.device) < SHARE for p in params]
        masking = build_masking("D", SHARE, "gradient", False, None)
        sizes = [p.numel() for p in params]
        return build(ChildAdam, params, lambda _: FixedMask(sizes, selected), masking, fused, **OPTIONS)

    yield "fairseq adam", lambda: Adam(params, **OPTIONS)
    has_fused = has_fused_adam(params[0].device)
    for name, fused in (("", True), (", exact", False)) if has_fused else (("", False),):
        yield f"F{name}", keyed("gradient", fused)
        yield f"F, update{name}", keyed("update", fused)
        yield f"D{name}", lambda fused=fused: fixed(fused)
    yield "the authors' F", lambda: AuthorsAdam(params, **OPTIONS)
    if has_fused:
        yield "torch AdamW fused", lambda: torch.optim.AdamW(params, fused=True, **OPTIONS)


def time_steps(params, repeats):
    best = {}
    device = params[0].device
    made = [(name, make()) for name, make in contestants(params)]
    for _ in range(repeats + 1):  # the first round makes the states
        for name, optimizer in made:
            if device.type == "cuda":
                torch.cuda.synchronize()
            wall, cpu = time.perf_counter(), time.process_time()
            optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            took = time.perf_counter() - wall, time.process_time() - cpu
            best[name] = tuple(map(min, took, best.get(name, (9e9, 9e9)))) if _ else (9e9, 9e9)
    extra = {
        name: sum(b.numel() * 4 for b in optimizer._work._buffers.values())
        + sum(m.numel() for m in getattr(optimizer.setup[1], "masks", []) if m is not None)
        for name, optimizer in made
        if hasattr(optimizer, "setup")
    }
    return best, extra


class Encoder(torch.nn.Module):
    """A small Transformer with separate projections, as ``maskplugins fisher`` sees fairseq's."""

    def __init__(self, width=256, layers=4, words=5000):
        super().__init__()
        self.embed = torch.nn.Embedding(words, width)
        linear = torch.nn.Linear
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict(
                {
                    **{name: linear(width, width) for name in ("q", "k", "v", "o")},
                    **{"up": linear(width, 4 * width), "down": linear(4 * width, width)},
                    **{"norm1": torch.nn.LayerNorm(width), "norm2": torch.nn.LayerNorm(width)},
                }
            )
            for _ in range(layers)
        )
        self.head = linear(width, 2)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            q, k, v = (layer[name](x).unflatten(-1, (4, x.size(-1) // 4)).transpose(1, 2) for name in "qkv")
            scores = (q @ k.transpose(-1, -2) / q.size(-1) ** 0.5).softmax(-1)
            x = layer["norm1"](x + layer["o"]((scores @ v).transpose(1, 2).flatten(2)))
            x = layer["norm2"](x + layer["down"](torch.relu(layer["up"](x))))
        return self.head(x[:, 0])


def time_fisher(batch_size=32, length=12, batches=3):
    torch.manual_seed(0)
    model = Encoder()
    tokens, labels = torch.randint(0, 5000, (batch_size, length)), torch.randint(0, 2, (batch_size,))

    def loss_of(rows):
        return torch.nn.functional.cross_entropy(model(tokens[rows]), labels[rows], reduction="sum")

    rows = torch.arange(batch_size)
    singles = [lambda i=i: rows[i : i + 1] for i in range(batch_size)]
    rates = {}
    fishers = {name: Fisher(model, dict(model.named_parameters()), vectorise=name == "vectorised") for name in NAMES}
    for fisher in fishers.values():
        fisher.add(loss_of, rows, singles)
    for _ in range(batches):
        for name, fisher in fishers.items():
            cpu = time.process_time()
            fisher.add(loss_of, rows, singles)
            rates[name] = max(rates.get(name, 0), batch_size / (time.process_time() - cpu))
    return rates


NAMES = ("one at a time", "vectorised")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--vocabulary", type=int, default=50265)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    params = build_parameters(args.layers, args.vocabulary, torch.device(args.device))
    count = sum(p.numel() for p in params)
    print(f"{count:,} parameters, torch {torch.__version__}, {args.device}, {torch.get_num_threads()} thread(s)")
    best, extra = time_steps(params, args.repeats)
    titles = (("seconds", 9), ("CPU s", 8), ("/ fairseq adam", 16), ("/ authors", 11), ("/ fused", 9), ("extra bytes/entry", 19))
    print(f"{'optimizer step':<20}" + "".join(f"{title:>{width}}" for title, width in titles))
    for name, (wall, cpu) in best.items():
        fused = f"{wall / best['torch AdamW fused'][0]:.2f}" if "torch AdamW fused" in best else "-"
        authors = wall / best["the authors' F"][0]
        memory = f"{extra[name] / count:.2f}" if name in extra else "-"
        print(f"{name:<20}{wall:>9.3f}{cpu:>8.3f}{wall / best['fairseq adam'][0]:>16.2f}{authors:>11.2f}{fused:>9}{memory:>19}")
    del params
    rates = time_fisher()
    print("Fisher, 32 sentences of 12 tokens, width 256, 4 layers: " + ", ".join(
        f"{name} {rate:.0f} examples/s" for name, rate in rates.items()
    ) + f", ratio {rates['vectorised'] / rates['one at a time']:.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
