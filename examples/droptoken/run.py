"""Fine-tune on movie-review snippets (positive or negative?) at several drop shares and seeds, and print one table.

    python examples/droptoken/run.py --out OUT [--checkpoint FILE --sentencepiece-model FILE --dict FILE]

Data: 10,568 snippets with a rating other than zero, of `vaderSentiment` 0.5 on PyPI (Hutto and Gilbert, ICWSM 2014),
fetched when this runs and checked by SHA-256. Every tenth snippet is held out. Without --checkpoint the model starts
from random weights and a vocabulary of 2,000 pieces is learned from the training part: then the table says nothing
about fine-tuning a pretrained model, only about regularisation. With --checkpoint the model has the sizes that the
checkpoint records, and snippets are cut to its positions.
"""

import argparse
import hashlib
import io
import json
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
import urllib.request
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
URL = (
    "https://files.pythonhosted.org/packages/ab/3c/8c63fad2e90fb7f60fb2a15d91edcef2659ba5fe18b728a59087f7a412e0/"
    "vaderSentiment-0.5.zip"
)
SHA256 = "5d97c37f3ef6e24eef331122e055dbedafeb6a56abfce0608b326701116ea49a"
SMALL = (
    "--encoder-layers 4 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 --encoder-attention-heads 4 --max-positions 128"
).split()
SIZES = ("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads", "max_positions")
SWITCHES = ("encoder_normalize_before", "layernorm_embedding", "untie_weights_roberta")


def read_snippets(out):
    """``[(label, text)]`` in the order of the file, which is fetched once."""
    path = out / URL.rsplit("/", 1)[1]
    archive = path.read_bytes() if path.exists() else urllib.request.urlopen(URL, timeout=180).read()
    if hashlib.sha256(archive).hexdigest() != SHA256:
        raise SystemExit(f"{path if path.exists() else URL}: the file is not the one that was checked")
    if not path.exists():
        path.with_suffix(".tmp").write_bytes(archive)
        path.with_suffix(".tmp").rename(path)
    outer = zipfile.ZipFile(io.BytesIO(archive))
    name = next(n for n in outer.namelist() if n.endswith("hutto_ICWSM_2014.tar.gz"))
    with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as inner:
        member = next(m for m in inner if m.name.endswith("movieReviewSnippets_GroundTruth.txt"))
        lines = inner.extractfile(member).read().decode("latin-1").splitlines()
    rows = [line.split("\t") for line in lines if line.count("\t") >= 2]
    return [("positive" if float(r[1]) > 0 else "negative", " ".join(r[2].split())) for r in rows if float(r[1]) != 0]


def model_options(checkpoint):
    """The options of fairseq-train that give a model of a checkpoint's sizes."""
    sys.path.insert(0, str(ROOT))
    import fairseq_maskplugins  # noqa: F401  (lets torch read fairseq's checkpoints)
    from fairseq_maskplugins.cli.checkpoint_file import load_checkpoint_file
    from fairseq_maskplugins.correct_embeddings.checkpoint import option_of

    state = load_checkpoint_file(str(checkpoint))
    model = {name: option_of(state, "model", name) for name in SIZES + SWITCHES}
    arch = "droptoken_roberta"
    if model["encoder_normalize_before"] and not model["layernorm_embedding"]:
        arch += "_prenorm"  # no option switches the embedding's norm off
    options = ["--arch", arch, *(f"--{name.replace('_', '-')}" for name in SWITCHES if model[name])]
    return options + [part for name in SIZES for part in (f"--{name.replace('_', '-')}", model[name])]


def prepare(args):
    """Write text, pieces and the folder that ``--task sentence_prediction`` reads; returns it."""
    import sentencepiece as spm

    data = args.out / "data"
    shutil.rmtree(data, ignore_errors=True)  # it may be of another vocabulary
    args.out.mkdir(parents=True, exist_ok=True)
    snippets = read_snippets(args.out)
    splits = {"train": [s for i, s in enumerate(snippets) if i % 10], "valid": snippets[::10]}
    for split, rows in splits.items():
        (args.out / f"{split}.txt").write_text("".join(text + "\n" for _, text in rows), encoding="utf-8")
        (args.out / f"{split}.label").write_text("".join(label + "\n" for label, _ in rows))
    model = args.sentencepiece_model
    if model is None:
        model = args.out / "sp.model"
        spm.SentencePieceTrainer.train(
            input=str(args.out / "train.txt"),
            model_prefix=str(args.out / "sp"),
            vocab_size=args.vocab_size,
            minloglevel=2,
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
    command = [sys.executable, "-m", "fairseq_cli.train", data, "--user-dir", ROOT / "fairseq_maskplugins", *model]
    command += "--task sentence_prediction --criterion sentence_prediction --num-classes 2 --init-token 0".split()
    command += "--separator-token 2 --shorten-method truncate --dropout 0.1 --attention-dropout 0.1".split()
    command += "--optimizer adam --adam-betas (0.9,0.98) --weight-decay 0.01 --clip-norm 1.0".split()
    command += "--lr-scheduler polynomial_decay --no-save --log-format json --log-interval 1000".split()
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
        model = model_options(args.checkpoint)
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
    main()
