"""The steps of quickstart.sh after the environment: text, tokenizer, data, pretraining, fillings, what was measured."""

import math
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from commands import ROOT, train_command, write  # noqa: E402
from corpora import fetch, read_wiki  # noqa: E402

SENTENCES = [
    "The city is the capital of the <mask> of the region.",
    "He was born in <mask> and died in 1950.",
    "It is one of the <mask> important works of the 19th century.",
]
CORRUPTION, PREDICTION = 0.4, 0.4
# rows of 16 tokens and an output layer of its own: a model of this size then learns to use context within minutes on two
# cores, where with rows of 128 tokens it learns nothing but how frequent each piece is
UPDATES, BATCH, LENGTH = 3000, 64, 16


def run(command, **kwargs):
    done = subprocess.run([str(part) for part in command], **kwargs)
    if done.returncode:
        sys.exit(f"quickstart: failed, with exit status {done.returncode}: {' '.join(map(str, command))}")
    return done


def fetch_text(out):
    """One article a line; every 40th is for validation."""
    lines = [article.text for article in read_wiki(fetch("wiki", out / "download"))]
    write(out / "valid.txt", "".join(line + "\n" for line in lines[::40]))
    write(out / "train.txt", "".join(line + "\n" for i, line in enumerate(lines) if i % 40))
    words = sum(len(line.split()) for line in lines)
    print(f"{len(lines):,} articles, {words:,} words")


def encode(out):
    import sentencepiece

    model = out / "sp.model"
    if not model.exists():
        sentencepiece.SentencePieceTrainer.train(
            input=str(out / "train.txt"), model_prefix=str(out / "sp-new"), vocab_size=4000, minloglevel=2
        )
        (out / "sp-new.model").rename(model)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    for split in ("train", "valid"):
        with open(out / f"{split}.txt", encoding="utf-8") as text:
            write(
                out / f"{split}.sp",
                "".join(" ".join(pieces.encode(line.strip(), out_type=str)) + "\n" for line in text),
            )


def binarize(out):
    temporary = out / "data-bin.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    command = [sys.executable, "-m", "fairseq_cli.preprocess", "--only-source", "--workers", 2]
    command += ["--trainpref", out / "train.sp", "--validpref", out / "valid.sp", "--destdir", temporary]
    run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    temporary.rename(out / "data-bin")


def pretrain(out):
    import torch

    gpu = torch.cuda.is_available()
    command = train_command(out / "data-bin")
    command += f"""
        --task decoupled_mlm --criterion decoupled_mlm
        --corruption-rate {CORRUPTION} --prediction-rate {PREDICTION} --tokens-per-sample {LENGTH}
        --arch roberta_base --untie-weights-roberta --encoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256
        --encoder-attention-heads 4 --max-positions {LENGTH}
        --dropout 0.0 --attention-dropout 0.0
        --optimizer adam --adam-betas (0.9,0.98) --weight-decay 0.01 --clip-norm 1.0
        --lr 0.002 --lr-scheduler polynomial_decay --warmup-updates 100 --total-num-update {UPDATES} --max-update {UPDATES}
        --batch-size {BATCH} --num-workers 1 --seed 1
        --save-interval-updates 500 --keep-interval-updates 1 --no-epoch-checkpoints --validate-interval 100
        --validate-interval-updates 1000 --log-format simple --log-interval 100
    """.split()
    command += ["--bpe", "sentencepiece", "--sentencepiece-model", out / "sp.model", "--save-dir", out / "checkpoints"]
    command += ["--fp16"] if gpu else ["--cpu"]
    print(
        f"on {torch.cuda.get_device_name() if gpu else 'the CPU'}; the whole log is in {out / 'train.log'}", flush=True
    )
    # batches this small gain nothing from more threads, and threads that wait for each other lose much on a busy machine
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with open(out / "train.log", "a") as log:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for line in process.stdout:
            log.write(line)
            log.flush()
            shown = re.search(r"\| (train_inner|valid) \| (.*)", line)
            if shown:
                print("  " + shown.group(2).replace("valid on 'valid' subset | ", "validation: "), flush=True)
    if process.wait():
        tail = (out / "train.log").read_text().strip().splitlines()[-15:]
        sys.exit("\n".join(tail) + f"\nquickstart: training failed, see {out / 'train.log'}")
    write(out / "pretrained", "done\n")


def report(out):
    """What the log says; a run that was interrupted has its parts in the same log."""
    text = (out / "train.log").read_text()
    updates = {int(n): line for line, n in re.findall(r"(train_inner \| .*?num_updates=(\d+).*)", text)}
    last = updates[max(updates)]
    validations = re.findall(r"valid on 'valid' subset \| loss ([\d.]+).*?ppl ([\d.]+).*?num_updates (\d+)", text)

    def value(name):
        return re.search(rf"\b{name}=([\d.e+-]+)", last).group(1)

    print(f"asked: corruption rate {CORRUPTION}, prediction rate {PREDICTION}")
    rates = f"corruption rate {value('corruption_rate')}, prediction rate {value('prediction_rate')}"
    print(f"measured at update {max(updates)}: {rates}")
    for loss, ppl, update in validations:
        print(f"validation at update {update}: {loss} bits a predicted token, perplexity {ppl}")
    vocabulary = len((out / "data-bin" / "dict.txt").read_text().splitlines())
    print(f"(guessing among {vocabulary:,} pieces: {math.log2(vocabulary):.2f} bits)")
    print(f"speed at the end: {float(value('wps')):,.0f} tokens/s")


def main():
    out = Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    start = time.time()
    steps = [
        ("[2/6] text: lead sections of the English Wikipedia", out / "train.txt", fetch_text),
        ("[3/6] sentencepiece model and pieces", out / "valid.sp", encode),
        ("[4/6] fairseq-preprocess", out / "data-bin", binarize),
        (f"[5/6] pretraining, {UPDATES} updates of {BATCH} x {LENGTH} tokens", out / "pretrained", pretrain),
    ]
    for title, done, step in steps:
        print(f"\n== {title}", flush=True)
        if done.exists():
            print(f"{done} is there already")
        else:
            step(out)
    print("\n== [6/6] what it learned and what was measured", flush=True)
    command = [sys.executable, "-W", "ignore", "-m", "fairseq_maskplugins.cli.main", "fill-mask"]
    command += [out / "checkpoints" / "checkpoint_last.pt", out / "data-bin", "--topk", 5]
    command += ["--bpe", "sentencepiece", "--sentencepiece-model", out / "sp.model", *SENTENCES]
    run(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
    report(out)
    print(f"took {time.time() - start:.0f} s without the environment; everything is in {out}")


if __name__ == "__main__":
    main()
