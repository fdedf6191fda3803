"""Fine-tune a checkpoint with each method and seed, and put the scores in one table and one plot.

    python examples/finetune/run.py DATA OUT [--checkpoint FILE] [--methods plain F D update droptoken] [--seeds 1 2 3]

DATA is what prepare.py wrote (``bin`` inside). Without a checkpoint a small RoBERTa is pretrained on the training text
first (``--pretrain-updates``). Runs that are finished are not run again. Writes OUT/table.md and OUT/scores.png.
"""

import argparse
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PLUGINS = ROOT / "fairseq_maskplugins"
SMALL = (
    "--arch roberta_base --encoder-layers 2 --encoder-embed-dim 64 --encoder-ffn-embed-dim 128 "
    "--encoder-attention-heads 2 --max-positions 128"
)
# one line for each method: what it adds to the plain command; {p} is the share kept, {mask} D's mask, {drop} DropToken's
# share of tokens that are dropped
METHODS = {
    "plain": "",
    "F": "--optimizer child_tuning_adam --reserve-p {p}",
    "D": "--optimizer child_tuning_adam --child-tuning-mode D --child-tuning-mask {mask}",
    "update": "--optimizer child_tuning_adam --reserve-p {p} --child-tuning-target update",
    "droptoken": "--arch droptoken_roberta_base --drop-token-prob {drop}",
}
GRID = ("F", "D", "update")  # the methods that --reserve-p is for


def call(command, log):
    """Run a command, its output in a file; the end of it where it fails."""
    with open(log, "w", encoding="utf-8") as file:
        done = subprocess.run([str(part) for part in command], stdout=file, stderr=subprocess.STDOUT, cwd=ROOT)
    if done.returncode != 0:
        sys.exit(f"{log}: the command failed:\n" + Path(log).read_text(encoding="utf-8")[-2000:])


def train_module(data, *options):
    return [sys.executable, "-m", "fairseq_cli.train", data, "--user-dir", PLUGINS, *options]


def pretrain(args, arch):
    """A checkpoint from the training text alone; returns its path."""
    folder = args.out / "pretrained"
    finished = folder / "finished"  # fairseq writes checkpoint_last.pt after each epoch, and resumes from it
    if not finished.exists():
        options = (
            "--task decoupled_mlm --criterion decoupled_mlm --mask-prob 0.4 --sample-break-mode eos "
            "--tokens-per-sample 128 --max-tokens 4096 --optimizer adam --adam-betas (0.9,0.98) --lr 0.001 "
            f"--lr-scheduler polynomial_decay --warmup-updates 50 --total-num-update {args.pretrain_updates} "
            f"--max-update {args.pretrain_updates} --cpu "
            "--no-epoch-checkpoints --disable-validation --log-format simple --log-interval 20"
        ).split()
        call(
            train_module(args.data / "bin" / "input0", *arch, *options, "--save-dir", folder), args.out / "pretrain.log"
        )
        finished.touch()
    return folder / "checkpoint_last.pt"


def finetune_options(args, arch, checkpoint, seed):
    return [
        *arch,
        *"--task sentence_prediction --criterion sentence_prediction --init-token 0 --separator-token 2".split(),
        *"--required-batch-size-multiple 1 --batch-size 32 --optimizer adam --adam-eps 1e-6 --weight-decay 0.1".split(),
        *("--adam-betas", "(0.9,0.98)", "--lr", args.lr, "--lr-scheduler", "polynomial_decay"),
        *("--num-classes", args.num_classes, "--warmup-updates", args.updates // 16),
        *("--total-num-update", args.updates, "--max-update", args.updates, "--seed", seed),
        *"--dropout 0.1 --attention-dropout 0.1 --clip-norm 0 --no-epoch-checkpoints --log-format json --cpu".split(),
        *(["--regression-target"] if args.num_classes == 1 else []),
        *"--shorten-method truncate --skip-invalid-size-inputs-valid-test".split(),
        *(
            "--restore-file",
            checkpoint,
            "--reset-optimizer",
            "--reset-dataloader",
            "--reset-meters",
            "--reset-lr-scheduler",
        ),
    ]


def best_score(log, regression):
    """The best accuracy in percent that a run's log holds; for regression the least squared error."""
    metric, best = ("loss", min) if regression else ("accuracy", max)
    text = Path(log).read_text(encoding="utf-8")
    found = [float(x) for x in re.findall(rf'"valid_{metric}": "?([\d.]+)', text)]
    if not found:
        sys.exit(f"{log}: no {metric} on the validation data that is a number")
    # fairseq divides every loss by log 2, as if it were in nats, squared errors too
    return round(best(found) * math.log(2), 4) if regression else best(found)


def check_settings(args):
    """Scores and masks in OUT stay; those of other settings must not get into the same table."""
    free = ("out", "methods", "reserve_p", "seeds")  # what the names of the files tell apart
    settings = {name: str(value) for name, value in vars(args).items() if name not in free}
    path = args.out / "settings.json"
    if path.exists():
        before = json.loads(path.read_text())
        for name, value in settings.items():
            if before.get(name) != value:
                option = "DATA" if name == "data" else "--" + name.replace("_", "-")
                sys.exit(f"{args.out}: holds runs with {option} {before.get(name)}, got {value}; choose another folder")
    path.write_text(json.dumps(settings) + "\n")


def make_mask(args, options, p, seed):
    """D's mask of a seed: the Fisher values once, and from them the mask of each share."""
    mask, values = (args.out / f"{name}-{seed}.safetensors" for name in (f"mask-{p:g}", "fisher"))
    tool = [sys.executable, "-m", "fairseq_maskplugins.cli.main", "fisher"]
    if not values.exists():
        sample = ["--max-examples", args.fisher_examples] if args.fisher_examples else []
        command = [*tool, args.data / "bin", "--user-dir", PLUGINS, *options, *sample, "--fisher", values]
        call(command, f"{values}.log")
    if not mask.exists():
        call([*tool, "select", "--fisher", values, "--reserve-p", p, "--mask", mask], f"{mask}.log")
    return mask


def run_one(args, arch, checkpoint, method, p, seed):
    name = f"{method}-{p:g}-{seed}" if method in GRID else f"{method}-{seed}"
    score = args.out / f"{name}.json"
    if score.exists():
        return json.loads(score.read_text())["score"]
    options = finetune_options(args, arch, checkpoint, seed)
    mask = make_mask(args, options, p, seed) if method == "D" else None
    added = METHODS[method].format(p=p, mask=mask, drop=args.drop_token).split()
    log, folder = args.out / f"{name}.log", args.out / f"{name}.run"
    call(train_module(args.data / "bin", *options, *added, "--no-save", "--save-dir", folder), log)
    shutil.rmtree(folder, ignore_errors=True)
    found = best_score(log, args.num_classes == 1)
    score.write_text(json.dumps({"method": method, "reserve_p": p, "seed": seed, "score": found}) + "\n")
    return found


def write_table(path, rows, seeds, metric):
    lines = [
        f"| method | share kept | mean {metric} | standard deviation | " + " | ".join(f"seed {s}" for s in seeds) + " |"
    ]
    lines.append("|" + "---|" * (4 + len(seeds)))
    for method, p, scores in rows:
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        kept = f"{p:g}" if method in GRID else "all"
        each = " | ".join(f"{x:.2f}" for x in scores)
        lines.append(f"| {method} | {kept} | {statistics.mean(scores):.2f} | {spread:.2f} | {each} |")
    path.write_text("\n".join(lines) + "\n")
    return lines


def plot(path, rows, metric):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.5 + 1.1 * len(rows), 3.5))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for i, (_, _, scores) in enumerate(rows):
        axes.plot([i] * len(scores), scores, "o", alpha=0.5)
        axes.plot([i - 0.25, i + 0.25], [statistics.mean(scores)] * 2, "k-")
    axes.set_xticks(range(len(rows)), [f"{m} {p:g}" if m in GRID else m for m, p, _ in rows])
    axes.set_ylabel(metric)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=lambda x: Path(x).resolve())
    parser.add_argument("out", type=lambda x: Path(x).resolve())
    parser.add_argument("--checkpoint", help="a RoBERTa of fairseq; then --arch-options say what it is")
    parser.add_argument("--arch-options", default=SMALL)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--reserve-p", nargs="+", type=float, default=[0.3])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--drop-token", type=float, default=0.15, help="share of tokens that droptoken drops")
    parser.add_argument("--num-classes", type=int, default=2, help="1: regression, as for STS-B")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--pretrain-updates", type=int, default=100)
    parser.add_argument("--fisher-examples", type=int, default=1000, help="0: all")
    args = parser.parse_args()
    if args.checkpoint:
        args.checkpoint = Path(args.checkpoint).resolve()  # fairseq runs in another folder
        if not args.checkpoint.is_file():  # fairseq would begin with random weights
            sys.exit(f"--checkpoint {args.checkpoint}: no such file")
    args.out.mkdir(parents=True, exist_ok=True)
    check_settings(args)
    arch = args.arch_options.split()
    checkpoint = args.checkpoint or pretrain(args, arch)
    rows = []
    for method in args.methods:
        for p in args.reserve_p if method in GRID else [1.0]:
            rows.append((method, p, [run_one(args, arch, checkpoint, method, p, seed) for seed in args.seeds]))
            print(f"{method} {p:g}: {rows[-1][2]}", flush=True)
    metric = "squared error" if args.num_classes == 1 else "accuracy, %"
    print("\n".join(write_table(args.out / "table.md", rows, args.seeds, metric)))
    plot(args.out / "scores.png", rows, metric)


if __name__ == "__main__":
    main()
