"""Time of correcting the embeddings of a RoBERTa-large checkpoint, beside writing and reading the file.

python benchmarks/correct_embeddings.py [--rows 50265] [--width 1024] [--layers 24]
"""

import argparse
import os
import sys
import tempfile
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fairseq_maskplugins.correct_embeddings.checkpoint import choose_rows, correct_checkpoint  # noqa: E402
from fairseq_maskplugins.correct_embeddings.correct import ReplacementRates  # noqa: E402


def timed(function):
    start = time.perf_counter()
    return function(), time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=50265)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=24, help="layers' worth of other weights, 12 width^2 each")
    args = parser.parse_args()
    embedding = torch.randn(args.rows, args.width)
    name = "encoder.sentence_encoder.embed_tokens.weight"
    model = {name: embedding, "encoder.lm_head.weight": embedding}
    model.update({f"layer{i}": torch.zeros(12, args.width, args.width) for i in range(args.layers)})
    state = {"model": model, "optimizer_history": [], "extra_state": {}}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "checkpoint.pt")
        _, writing = timed(lambda: torch.save(state, path))
        state, reading = timed(lambda: torch.load(path, map_location="cpu"))
        size = os.path.getsize(path) / 2**20
    rows = choose_rows(args.rows, args.rows - 1)
    report, correcting = timed(lambda: correct_checkpoint(state, ReplacementRates(0.15, 0.1, 0.1), args.rows - 1, rows))
    print(f"{report.rows} rows of {args.width}, file of {size:.0f} MiB, {torch.get_num_threads()} threads")
    print("| write | read | correct |\n|---|---|---|")
    print(f"| {writing:.2f} s | {reading:.2f} s | {correcting:.2f} s |")


if __name__ == "__main__":
    main()
