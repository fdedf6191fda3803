"""SQuAD with a checkpoint of fairseq: export to Hugging Face's transformers, fine-tune there, score officially.

    python examples/squad/run.py --checkpoint model.pt --dict dict.txt --bpe gpt2 --gpt2-encoder-json encoder.json \\
        --gpt2-vocab-bpe vocab.bpe --train train-v1.1.json --dev dev-v1.1.json --out OUT
    python examples/squad/run.py --model roberta-hf --train train-v2.0.json --dev dev-v2.0.json --out OUT --seeds 1 2 3
    python examples/squad/run.py --checkpoint model.pt --train train.json --dev dev.json --out OUT --dry-run

--model takes a folder that is exported already. Files of 1.1 and 2.0 are told apart by themselves. A seed that is finished
is kept, one that was interrupted goes on from its last epoch. OUT gets model (the export), and for each seed predictions.json
(in the official form) and scores.json; table.md has them all.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]
from commands import ROOT, begin, call, quote, write  # noqa: E402
from squad import best_spans, evaluate, make_windows, read_squad  # noqa: E402
from training import predict, train  # noqa: E402

TOKENIZER = ("dict", "bpe", "sentencepiece_model", "gpt2_encoder_json", "gpt2_vocab_bpe")


def export_command(args):
    words = [sys.executable, "-m", "fairseq_maskplugins.cli", "export-hf", args.checkpoint, args.out / "model"]
    for name in TOKENIZER:
        value = getattr(args, name)
        words += [] if value is None else [f"--{name.replace('_', '-')}", value]
    return [*words, "--masked-lm"]


def finetune_command(args, folder):
    """This program for a folder that is exported already."""
    words = [sys.executable, Path(__file__).resolve(), "--model", folder]
    for name, value in vars(args).items():
        if name not in ("checkpoint", "model", "dry_run", *TOKENIZER) and value not in (None, False):
            values = value if isinstance(value, list) else [] if value is True else [value]
            words += [f"--{name.replace('_', '-')}", *values]
    return words


def check_settings(args):
    """What is in OUT was made with the same settings."""
    free = ("out", "seeds", "cpu", "keep", "dry_run")
    settings = {name: str(value) for name, value in vars(args).items() if name not in free}
    path = args.out / "settings.json"
    before = json.loads(path.read_text()) if path.exists() else settings
    for name, value in settings.items():
        if before.get(name) != value:
            option = "--" + name.replace("_", "-")
            sys.exit(f"{args.out}: holds runs with {option} {before.get(name)}, got {value}; choose another --out")
    write(path, json.dumps(settings) + "\n")


def run_seed(args, folder, seed, data):
    """Scores of a seed; what is finished is read."""
    tokenizer, windows, dev, dev_windows, null = data
    out = args.out / f"seed-{seed}"
    if (out / "scores.json").exists():
        return json.loads((out / "scores.json").read_text())
    out.mkdir(parents=True, exist_ok=True)
    model = train(args, folder, seed, windows, tokenizer.pad_token_id, out)
    starts, ends = predict(args, model, dev_windows, tokenizer.pad_token_id)
    answers = best_spans(dev_windows, starts, ends, dev, args.longest_answer, null)
    found = evaluate(answers, dev)
    write(out / "predictions.json", json.dumps(answers, ensure_ascii=False, indent=1) + "\n")
    if args.keep:
        shutil.rmtree(out / "model", ignore_errors=True)
        model.save_pretrained(out / "model.part")
        tokenizer.save_pretrained(out / "model.part")
        os.replace(out / "model.part", out / "model")
    write(out / "scores.json", json.dumps(found) + "\n")
    (out / "state.pt").unlink()
    return found


def write_table(path, results):
    names = [name for name in next(iter(results.values())) if name != "total"]
    lines = ["| seed | " + " | ".join(f"{name}, %" for name in names) + " |", "|" + "---|" * (1 + len(names))]
    rows = {**results, "mean": {name: statistics.mean(found[name] for found in results.values()) for name in names}}
    lines += [f"| {seed} | " + " | ".join(f"{found[name]:.2f}" for name in names) + " |" for seed, found in rows.items()]
    write(path, "\n".join(lines) + "\n")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--checkpoint", type=Path, help="a pretrained RoBERTa of fairseq")
    source.add_argument("--model", type=Path, help="a folder that maskplugins export-hf wrote")
    for name in TOKENIZER:
        text = "of export-hf: the checkpoint's (default: what the checkpoint names)"
        parser.add_argument(f"--{name.replace('_', '-')}", type=str if name == "bpe" else Path, help=text)
    parser.add_argument("--train", type=Path, required=True, help="train-v1.1.json or train-v2.0.json")
    parser.add_argument("--dev", type=Path, required=True, help="dev-v1.1.json or dev-v2.0.json")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=48, help="windows in a batch")
    parser.add_argument("--lr", type=float, default=1.5e-5)
    parser.add_argument("--warmup", type=float, default=0.06, help="share of the updates")
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--length", type=int, help="tokens of a window (default: 384, or what the model has)")
    parser.add_argument("--overlap", type=int, help="tokens that neighbouring windows share (default: a third)")
    parser.add_argument("--longest-answer", type=int, default=30, help="in tokens")
    parser.add_argument("--cpu", action="store_true", help="leave a GPU alone")
    parser.add_argument("--keep", action="store_true", help="keep each seed's model, as a folder for transformers")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, and run nothing")
    args = parser.parse_args(arguments)
    for name in ("checkpoint", "model", "train", "dev", *TOKENIZER):
        path = getattr(args, name)
        if isinstance(path, Path):
            setattr(args, name, path.resolve())
            if not args.dry_run and not path.exists():
                sys.exit(f"--{name.replace('_', '-')} {path}: no such file")
    for name, least in (("epochs", 1), ("batch_size", 1), ("longest_answer", 1)):
        if getattr(args, name) < least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}, got {getattr(args, name)}")
    args.out = args.out.resolve()
    return args


def load(args, folder):
    """Tokenizer, windows of the training set, questions and windows of dev, and whether questions may have no answer."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    if not tokenizer.is_fast:
        sys.exit(f"{folder}: its tokenizer does not say where in the text its tokens stand: export it with export-hf")
    most = tokenizer.model_max_length
    args.length = args.length or min(384, most)
    args.overlap = args.length // 3 if args.overlap is None else args.overlap
    if not 32 <= args.length <= most:
        sys.exit(f"--length must lie between 32 and the model's positions, {most}, got {args.length}")
    if not 0 <= args.overlap <= args.length // 3:
        sys.exit(f"--overlap must lie between 0 and a third of --length, {args.length // 3}, got {args.overlap}")
    questions, dev = read_squad(args.train), read_squad(args.dev)
    windows, dev_windows = (make_windows(tokenizer, part, args.length, args.overlap) for part in (questions, dev))
    print(f"{len(questions)} questions in {len(windows)} windows; dev: {len(dev)} in {len(dev_windows)}", flush=True)
    return tokenizer, windows, dev, dev_windows, any(not question.answers for question in questions)


def main(arguments=None):
    args = parse(arguments)
    folder = args.model or args.out / "model"
    if args.dry_run:
        if args.checkpoint:
            print(quote(["env", f"PYTHONPATH={ROOT}", *export_command(args)]))
        print(quote(finetune_command(args, folder)))
        return
    try:
        import transformers
    except ImportError:
        sys.exit("transformers is missing: pip install 'fairseq_maskplugins[hf]'")
    transformers.utils.logging.set_verbosity_error()  # the head is new, which it would warn of
    args.out.mkdir(parents=True, exist_ok=True)
    check_settings(args)
    if not folder.exists():
        call(export_command(args), args.out / "export.log")
    data, results = load(args, folder), {}
    for seed in args.seeds:
        results[seed] = run_seed(args, folder, seed, data)
        scores = [f"{name} {value:.2f}" for name, value in results[seed].items() if name != "total"]
        print(f"seed {seed}, %: {', '.join(scores)}", flush=True)
    write_table(args.out / "table.md", results)
    print((args.out / "table.md").read_text())


if __name__ == "__main__":
    begin(main)
