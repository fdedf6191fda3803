"""Training step of ``mae_roberta`` against plain masked-LM training of RoBERTa on the same batch.

    python benchmarks/mae.py [--lengths 128 512] [--tokens 512] [--rates 0.4 0.75] [--rounds 3] [--device cpu]

12 layers of 768, a decoder of 2 layers of 384, 32k vocabulary. A step is a forward pass, the loss at predicted
positions and a backward pass. Every corrupted token is ``<mask>`` and predicted. Peak memory is that of a process of
its own that does two steps (on a GPU, of the allocator), weights and gradients included; Linux only.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from bench_models import Task, build, describe, make_rows, median, ratio, time_side_by_side

ARCHES = {"plain": "roberta_base", "mae": "mae_roberta_base"}


def make_step(kind, args, task, length, rate, device):
    options = dict(encoder_layers=args.layers, decoder_layers=2, decoder_embed_dim=384, max_positions=length)
    model = build(ARCHES[kind], task, device, **options)
    tokens = make_rows(task, max(1, args.tokens // length), length, device)
    order = torch.rand(len(tokens), length - 2, generator=torch.Generator().manual_seed(3)).argsort(1)
    masked = torch.zeros(tokens.shape, dtype=torch.bool, device=device)
    masked[:, 1:-1] = (order < round(rate * (length - 2))).to(device)
    source = tokens.masked_fill(masked, task.mask_idx)

    def step():
        model.zero_grad()
        F.cross_entropy(model(source, masked_tokens=masked)[0], tokens[masked]).backward()

    return step


def peak_memory(kind, args, length, rate):
    """MiB, measured in a process of its own."""
    command = [sys.executable, __file__, "--memory-of", kind, "--lengths", length, "--rates", rate]
    command += ["--tokens", args.tokens, "--layers", args.layers, "--device", args.device]
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.4, 0.75])
    parser.add_argument("--tokens", type=int, default=512, help="tokens in a batch")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--skip-memory", action="store_true", help="measure time only")
    parser.add_argument("--memory-of", choices=sorted(ARCHES), help=argparse.SUPPRESS)
    args = parser.parse_args()
    device, task = torch.device(args.device), Task(32000)
    if args.memory_of:
        step = make_step(args.memory_of, args, task, args.lengths[0], args.rates[0], device)
        step(), step()
        on_device = device.type == "cuda"
        print(torch.cuda.max_memory_allocated() / 2**20 if on_device else _resident())
        return
    print(f"{args.layers} layers of 768, batches of {args.tokens} tokens, {args.rounds} rounds; {describe(device)}\n")
    print("| row length | rate | plain | MAE | MAE / plain | peak memory plain | MAE |\n|---|---|---|---|---|---|---|")
    for length in args.lengths:
        for rate in args.rates:
            steps = {kind: make_step(kind, args, task, length, rate, device) for kind in ARCHES}
            times = time_side_by_side(steps, args.rounds, device)
            del steps
            memory = {kind: "-" for kind in ARCHES}
            if not args.skip_memory:
                memory = {kind: f"{peak_memory(kind, args, length, rate):.0f} MiB" for kind in ARCHES}
            print(
                f"| {length} | {rate} | {median(times['plain']) * 1e3:.0f} ms | {median(times['mae']) * 1e3:.0f} ms | "
                f"{ratio(times, 'mae', 'plain'):.2f} | {memory['plain']} | {memory['mae']} |",
                flush=True,
            )


def _resident():
    # not getrusage: its maximum starts at that of the parent process
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) / 2**10


if __name__ == "__main__":
    main()
