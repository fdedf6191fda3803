"""The steps of quickstart.sh after the environment: text, tokenizer, data, pretraining, filled masks, measurements."""

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "examples")]
from commands import ROOT, train_command  # noqa: E402
from corpora import fetch, read_wiki  # noqa: E402
from training_log import report, show_log  # noqa: E402

SENTENCES = [
    "The city is the capital of the <mask> of the region.",
    "He was born in <mask> and died in 1950.",
    "It is one of the <mask> important works of the 19th century.",
]
CORRUPTION, PREDICTION = 0.4, 0.4
# with sequences of 16 tokens and an untied output layer, a model of this size learns to use context within minutes on two
# cores; with sequences of 128 tokens it learns only how frequent each piece is
UPDATES, VOCABULARY, BATCH, LENGTH = 3000, 4000, 64, 16


def run(command, **kwargs):
    done = subprocess.run([str(part) for part in command], **kwargs)
    if done.returncode:
        sys.exit(f"quickstart: failed, with exit status {done.returncode}: {' '.join(map(str, command))}")
    return done


def write(path, content):
    """Write a file atomically."""
    temporary = path.with_suffix(path.suffix + ".tmp")
    temporary.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    temporary.rename(path)


def check_settings(args, out):
    """Refuse to resume a folder with other options."""
    path = out / "settings.json"
    text = str(Path(args.text).resolve()) if args.text else None
    settings = {"text": text, "updates": args.updates, "vocab_size": args.vocab_size}
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        different = [
            f"--{key.replace('_', '-')} {found.get(key)}" if found.get(key) is not None else f"no --{key}"
            for key in settings
            if found.get(key) != settings[key]
        ]
        if different:
            sys.exit(f"quickstart: {out}: was begun with {', '.join(different)}; give the same, or another folder")
    write(path, json.dumps(settings) + "\n")


def fetch_text(out, own=None):
    """One article, or paragraph of a file of one's own, a line; every 40th is for validation."""
    try:
        if own:
            paragraphs = Path(own).read_text(encoding="utf-8").splitlines()
        else:
            paragraphs = [article.text for article in read_wiki(fetch("wiki", out / "download"))]
    except UnicodeDecodeError as error:
        sys.exit(f"quickstart: --text {own}: is not UTF-8: {error.reason} at byte {error.start}")
    lines = [" ".join(paragraph.split()) for paragraph in paragraphs]
    lines = [line for line in lines if line]
    if len(lines) < 2:
        sys.exit(f"quickstart: --text {own}: needs two paragraphs or more, each on a line of its own, got {len(lines)}")
    write(out / "valid.txt", "".join(line + "\n" for line in lines[::40]))
    write(out / "train.txt", "".join(line + "\n" for i, line in enumerate(lines) if i % 40))
    words = sum(len(line.split()) for line in lines)
    print(f"{len(lines):,} {'paragraphs' if own else 'articles'}, {words:,} words")


def encode(out, vocab_size=VOCABULARY):
    import sentencepiece

    model = out / "sp.model"
    if not model.exists():
        trained = io.BytesIO()  # to a file it would write without asking whether there was room
        # not as a file either, whose name would go into the model
        lines = (out / "train.txt").read_text(encoding="utf-8").split("\n")[:-1]
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines), model_writer=trained, vocab_size=vocab_size, minloglevel=2
            )
        except RuntimeError as error:
            sys.exit(f"quickstart: --vocab-size {vocab_size}: does not suit the text: {' '.join(str(error).split())}")
        write(model, trained.getvalue())
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    for split in ("train", "valid"):
        with open(out / f"{split}.txt", encoding="utf-8") as text:
            write(out / f"{split}.sp", "".join(" ".join(pieces.encode(line.strip(), out_type=str)) + "\n" for line in text))


def binarize(out):
    temporary = out / "data-bin.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    command = [sys.executable, "-m", "fairseq_cli.preprocess", "--only-source", "--workers", 2]
    command += ["--trainpref", out / "train.sp", "--validpref", out / "valid.sp", "--destdir", temporary]
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"quickstart: fairseq-preprocess failed: {(done.stdout.strip().splitlines() or [''])[-1]}")
    temporary.rename(out / "data-bin")


def pretrain(out, updates):
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
        --lr 0.002 --lr-scheduler polynomial_decay --warmup-updates {min(100, updates // 10)}
        --total-num-update {updates} --max-update {updates}
        --batch-size {BATCH} --num-workers 1 --seed 1
        --save-interval-updates {min(500, -(-updates // 6))} --keep-interval-updates 1 --no-epoch-checkpoints
        --validate-interval-updates {min(1000, -(-updates // 3))} --validate-interval 100
        --log-format simple --log-interval {min(100, -(-updates // 6))}
    """.split()
    command += ["--bpe", "sentencepiece", "--sentencepiece-model", out / "sp.model", "--save-dir", out / "checkpoints"]
    command += ["--fp16"] if gpu else ["--cpu"]
    print(f"on {torch.cuda.get_device_name() if gpu else 'the CPU'}; the whole log is in {out / 'train.log'}", flush=True)
    # batches this small gain nothing from more threads, and threads that wait for each other lose much on a busy machine
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with open(out / "train.log", "ab+") as log:
        if log.tell():
            log.seek(-1, os.SEEK_END)
            if log.read(1) != b"\n":  # of a run for which the disk was full
                log.write(b"\n")
        log.flush()
        begin = log.tell()
        words = [str(part) for part in command]
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env=environment)
        show_log(process, out / "train.log", begin)
    if process.wait():
        tail = (out / "train.log").read_text().strip().splitlines()[-15:]
        sys.exit("\n".join(tail) + f"\nquickstart: training failed, see {out / 'train.log'}")
    write(out / "pretrained", "done\n")


def sentences_of(out):
    """Beginnings of the validation text that fit in a sequence, with the middle word masked."""
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(out / "sp.model"))
    found = []
    for line in (out / "valid.txt").read_text(encoding="utf-8").splitlines()[:3]:
        words = line.split()
        while len(words) > 1 and len(pieces.encode(" ".join(words))) > LENGTH - 3:
            words.pop()
        words[len(words) // 2] = "<mask>"
        found.append(" ".join(words))
    return found


def main():
    parser = argparse.ArgumentParser(description="Pretrain a small RoBERTa with separate corruption and prediction rates.")
    parser.add_argument("out", nargs="?", default=ROOT / "quickstart-run", help="folder (default: quickstart-run)")
    parser.add_argument("--text", help="UTF-8 text of your own, a paragraph a line (default: Wikipedia's lead sections)")
    parser.add_argument("--updates", type=int, default=UPDATES, help=f"of pretraining (default: {UPDATES})")
    parser.add_argument("--vocab-size", type=int, default=VOCABULARY, help=f"pieces (default: {VOCABULARY})")
    args = parser.parse_args()
    if args.updates < 1:
        sys.exit(f"quickstart: --updates must be at least 1, got {args.updates}")
    out = Path(args.out).resolve()
    try:
        out.mkdir(parents=True, exist_ok=True)
        check_settings(args, out)
        work(args, out)
    except OSError as error:
        sys.exit(f"quickstart: {error.filename or out}: {error.strerror or error}")


def work(args, out):
    start = time.time()
    source = args.text or "lead sections of the English Wikipedia"
    steps = [
        (f"[2/6] text: {source}", out / "train.txt", lambda: fetch_text(out, args.text)),
        ("[3/6] sentencepiece model and pieces", out / "valid.sp", lambda: encode(out, args.vocab_size)),
        ("[4/6] fairseq-preprocess", out / "data-bin", lambda: binarize(out)),
        (
            f"[5/6] pretraining, {args.updates} updates of {BATCH} x {LENGTH} tokens",
            out / "pretrained",
            lambda: pretrain(out, args.updates),
        ),
    ]
    for title, done, step in steps:
        print(f"\n== {title}", flush=True)
        if done.exists():
            print(f"{done} is there already")
        else:
            step()
    print("\n== [6/6] filled masks and measurements", flush=True)
    command = [sys.executable, "-W", "ignore", "-m", "fairseq_maskplugins.cli", "fill-mask"]
    command += [out / "checkpoints" / "checkpoint_last.pt", out / "data-bin", "--topk", 5]
    command += ["--bpe", "sentencepiece", "--sentencepiece-model", out / "sp.model"]
    command += sentences_of(out) if args.text else SENTENCES
    run(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
    report(out, CORRUPTION, PREDICTION)
    print(f"took {time.time() - start:.0f} s without the environment; everything is in {out}")


if __name__ == "__main__":
    main()
