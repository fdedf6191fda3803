"""Fine-tune on movie-review snippets (positive or negative?) at several drop shares and seeds, and print one table.

    python examples/droptoken/run.py --out OUT [--checkpoint FILE --sentencepiece-model FILE --dict FILE]

Data: 10,568 snippets with a rating other than zero, of `vaderSentiment` 0.5 on PyPI (Hutto and Gilbert, ICWSM 2014),
fetched when this runs and checked by SHA-256. Every tenth snippet is held out. Without --checkpoint the model starts
from random weights and a vocabulary of 2,000 pieces is learned from the training part: then the table says nothing
about fine-tuning a pretrained model, only about regularisation. With --checkpoint the model has the sizes that the
checkpoint records, and snippets are cut to its positions.
"""

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from commands import begin, model_options, train_command  # noqa: E402
from corpora import fetch, read_reviews  # noqa: E402

SMALL = (
    "--encoder-layers 4 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 --encoder-attention-heads 4 --max-positions 128"
).split()


def prepare(args):
    """Write text, pieces and the folder that ``--task sentence_prediction`` reads; returns it."""
    import sentencepiece as spm

    data = args.out / "data"
    shutil.rmtree(data, ignore_errors=True)  # it may be of another vocabulary
    args.out.mkdir(parents=True, exist_ok=True)
    names = ("negative", "positive")
    snippets = [(names[label], text) for text, label in read_reviews(fetch("reviews", args.out))]
    splits = {"train": [s for i, s in enumerate(snippets) if i % 10], "valid": snippets[::10]}
    for split, rows in splits.items():
        (args.out / f"{split}.txt").write_text("".join(text + "\n" for _, text in rows), encoding="utf-8")
        (args.out / f"{split}.label").write_text("".join(label + "\n" for label, _ in rows))
    model = args.sentencepiece_model
    if model is None:
        model = args.out / "sp.model"
        spm.SentencePieceTrainer.train(
            input=str(args.out / "train.txt"), model_prefix=str(args.out / "sp"), vocab_size=args.vocab_size, minloglevel=2
        )
    pieces = spm.SentencePieceProcessor(model_file=str(model))
    for split, rows in splits.items():
        lines = "".join(" ".join(pieces.encode(text, out_type=str)) + "\n" for _, text in rows)
        (args.out / f"{split}.sp").write_text(lines, encoding="utf-8")
    dictionary = ["--srcdict", args.dict] if args.dict else []
    for suffix, part, options in (("sp", "input0", dictionary), ("label", "label", [])):
        command = [sys.executable, "-m", "fairseq_cli.preprocess", "--only-source", "--workers", 1]
        command += ["--destdir", data / part, *options]
        for split in splits:
            command += [f"--{split}pref", args.out / f"{split}.{suffix}"]
        call(command)
    return data


def call(command):
    """Run a command; returns what it printed, and stops with the end of it where it fails."""
    done = subprocess.run([str(x) for x in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(done.stdout[-3000:])
    return done.stdout


def fine_tune(args, model, data, drop, seed):
    """Train once; returns the accuracy after the last epoch in percent, and the seconds that an epoch's updates took."""
    command = train_command(data, *model)
    command += "--task sentence_prediction --criterion sentence_prediction --num-classes 2 --init-token 0".split()
    command += "--separator-token 2 --shorten-method truncate --dropout 0.1 --attention-dropout 0.1".split()
    command += "--optimizer adam --adam-betas (0.9,0.98) --weight-decay 0.01 --clip-norm 1.0".split()
    # fairseq 0.12.2 waits five seconds for each worker after a validation, and short rows need none
    command += "--lr-scheduler polynomial_decay --no-save --log-format json --log-interval 1000 --num-workers 0".split()
    updates = -(-sum(1 for _ in open(args.out / "train.label")) // args.batch_size)
    total = args.epochs * updates
    command += ["--lr", args.lr, "--total-num-update", total, "--warmup-updates", total // 16]
    command += ["--batch-size", args.batch_size, "--max-epoch", args.epochs, "--seed", seed, "--drop-token-prob", drop]
    command += ["--finetune-from-model", args.checkpoint] if args.checkpoint else []
    command += ["--cpu"] if args.cpu else []
    started = time.perf_counter()
    log = call(command)
    valid = [json.loads(x) for x in re.findall(r"\| valid \| (\{.*\})", log)]
    speeds = [float(json.loads(x)["train_ups"]) for x in re.findall(r"\| train \| (\{.*\})", log)]
    accuracy, seconds = float(valid[-1]["valid_accuracy"]), updates / statistics.median(speeds)
    took = time.perf_counter() - started
    print(f"drop {drop} seed {seed}: {accuracy:.1f} %, {seconds:.1f} s an epoch, {took:.0f} s in all", flush=True)
    return accuracy, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for data")
    parser.add_argument("--checkpoint", type=Path, help="pretrained model (default: random weights)")
    parser.add_argument("--sentencepiece-model", type=Path, help="its pieces (default: learned from the training part)")
    parser.add_argument("--dict", type=Path, help="its dict.txt")
    parser.add_argument("--model-options", help=f"the model without --checkpoint (default: {' '.join(SMALL)})")
    parser.add_argument("--drop", type=float, nargs="+", default=[0.0, 0.1, 0.15, 0.25, 0.5])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--vocab-size", type=int, default=2000)
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args()
    files = {"--checkpoint": args.checkpoint, "--sentencepiece-model": args.sentencepiece_model, "--dict": args.dict}
    if any(files.values()):
        for option, path in files.items():
            if path is None or not path.is_file():  # fairseq would begin with random weights
                raise SystemExit(f"{option}: a pretrained model takes all of {', '.join(files)}, got {path or 'none'}")
        model = model_options(args.checkpoint, "droptoken_roberta")
    else:
        model = ["--arch", "droptoken_roberta", *(args.model_options.split() if args.model_options else SMALL)]
    data = prepare(args)
    # seeds outside, shares inside: where the machine gets slower over time, all shares do
    results = {drop: [] for drop in args.drop}
    for seed in args.seeds:
        for drop in args.drop:
            results[drop].append(fine_tune(args, model, data, drop, seed))
    print("\n| drop | accuracy in %, mean (lowest to highest) | s per epoch |\n|---|---|---|")
    for drop, runs in results.items():
        found = [accuracy for accuracy, _ in runs]
        spread = f"{min(found):.1f} to {max(found):.1f}"
        print(f"| {drop} | {statistics.mean(found):.1f} ({spread}) | {statistics.median(s for _, s in runs):.1f} |")


if __name__ == "__main__":
    begin(main)
