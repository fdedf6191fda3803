"""Fine-tune a checkpoint with each method and seed, and put the scores in one table and one plot.

    python examples/finetune/run.py DATA OUT                        # a small RoBERTa, pretrained on the text, on the CPU
    python examples/finetune/run.py DATA OUT --gpu --checkpoint model.pt --lr 1e-5 --updates 20935 --warmup-updates 1256
    python examples/finetune/run.py DATA OUT --methods plain D --reserve-p 0.2 0.3 --seeds 1 2 3 4 5 --dry-run
    python examples/finetune/run.py DATA OUT --gpu --checkpoint model.pt -- --batch-size 8 --update-freq 4

DATA is what prepare.py wrote (bin inside). Without a checkpoint a small RoBERTa is pretrained on the training text first.
Runs that are finished are not run again, one that was interrupted goes on from its last epoch. Options behind -- go to
fairseq-train. Writes OUT/table.md and OUT/scores.png.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]
from commands import (  # noqa: E402
    PLUGINS,
    ROOT,
    begin,
    call,
    model_options,
    quote,
    require,
    split_more,
    train_command,
    write,
)
from outcome import GRID, best_scores, describe, plot, write_table  # noqa: E402

SCORES = Path(__file__).resolve().parent / "scores"  # a user dir: the criterion that scores
SMALL = (
    "--arch roberta_base --encoder-layers 2 --encoder-embed-dim 64 --encoder-ffn-embed-dim 128 "
    "--encoder-attention-heads 2 --max-positions 128"
)
# one line for each method: what it adds to the plain command; {p} is the share kept, {mask} D's mask, {drop} DropToken's
# share of tokens that are dropped, {arch} the architecture without it
METHODS = {
    "plain": "",
    "F": "--optimizer child_tuning_adam --reserve-p {p}",
    "D": "--optimizer child_tuning_adam --child-tuning-mode D --child-tuning-mask {mask}",
    "update": "--optimizer child_tuning_adam --reserve-p {p} --child-tuning-target update",
    "droptoken": "--arch droptoken_{arch} --drop-token-prob {drop}",
}
LOGGED = ("accuracy",)  # fairseq's own criterion logs it, where there are classes
FP16 = "--fp16 --fp16-init-scale 4 --threshold-loss-scale 1 --fp16-scale-window 128".split()


def start(args, command, log, **kwargs):
    """Run a command, or, in a dry run, print it, each once."""
    line = quote(command)
    if not args.dry_run:
        call(command, log, **kwargs)
    elif line not in args.printed:
        args.printed.add(line)
        print(line)


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
        command = train_command(args.data / "bin" / "input0", *arch, *options, "--save-dir", folder, user_dir=PLUGINS)
        start(args, command, args.out / "pretrain.log")
        if not args.dry_run:
            finished.touch()
    return folder / "checkpoint_last.pt"


def finetune_options(args, arch, checkpoint, seed):
    measured = [name for name in args.scores if name not in LOGGED]
    return [
        *arch,
        *"--task sentence_prediction --criterion sentence_scores --init-token 0 --separator-token 2".split(),
        *(["--scores", ",".join(measured)] if measured else []),
        *"--required-batch-size-multiple 1 --optimizer adam --adam-eps 1e-6 --weight-decay 0.1".split(),
        *("--batch-size", args.batch_size, "--adam-betas", "(0.9,0.98)"),
        *("--lr", args.lr, "--lr-scheduler", "polynomial_decay", "--warmup-updates", args.warmup_updates),
        *("--num-classes", args.num_classes, "--total-num-update", args.updates, "--max-update", args.updates),
        *("--seed", seed, *([] if args.gpu else ["--cpu"]), "--distributed-world-size", 1),
        *"--dropout 0.1 --attention-dropout 0.1 --clip-norm 0 --no-epoch-checkpoints --log-format json".split(),
        *("--best-checkpoint-metric", args.scores[0], "--maximize-best-checkpoint-metric"),
        *(["--regression-target"] if args.num_classes == 1 else []),
        # fairseq 0.12.2 waits five seconds for each worker after a validation, and short rows need none
        *"--shorten-method truncate --skip-invalid-size-inputs-valid-test --num-workers 0".split(),
        *("--finetune-from-model", checkpoint),
    ]


def check_settings(args, more):
    """Scores and masks in OUT stay; those of other settings must not get into the same table."""
    free = ("out", "methods", "reserve_p", "seeds", "dry_run", "printed", "keep")  # what does not change a run
    settings = {name: str(value) for name, value in vars(args).items() if name not in free}
    settings["what stands behind --"] = quote(more)
    path = args.out / "settings.json"
    if path.exists():
        before = json.loads(path.read_text())
        for name, value in settings.items():
            if before.get(name) != value:
                option = name if " " in name else "DATA" if name == "data" else "--" + name.replace("_", "-")
                sys.exit(f"{args.out}: holds runs with {option} {before.get(name)}, got {value}; choose another folder")
    write(path, json.dumps(settings) + "\n")


def make_mask(args, options, p, seed, more):
    """D's mask of a seed: the Fisher values once, and from them the mask of each share."""
    mask, values = (args.out / f"{name}-{seed}.safetensors" for name in (f"mask-{p:g}", "fisher"))
    tool = [sys.executable, "-m", "fairseq_maskplugins.cli", "fisher"]
    if not values.exists():
        sample = ["--max-examples", args.fisher_examples] if args.fisher_examples else []
        command = [*tool, args.data / "bin", "--user-dir", SCORES, *options, *more, *sample, "--fisher", values]
        start(args, command, f"{values}.log")
    if not mask.exists():
        start(args, [*tool, "select", "--fisher", values, "--reserve-p", p, "--mask", mask], f"{mask}.log")
    return mask


def run_one(args, arch, checkpoint, method, p, seed, more):
    """The scores of a run, by name; what is finished is read."""
    name = f"{method}-{p:g}-{seed}" if method in GRID else f"{method}-{seed}"
    score = args.out / f"{name}.json"
    if score.exists() and not args.dry_run:
        return json.loads(score.read_text())["scores"]
    options = finetune_options(args, arch, checkpoint, seed)
    mask = make_mask(args, options, p, seed, more) if method == "D" else None
    values = {"p": p, "mask": mask, "drop": args.drop_token, "arch": arch[arch.index("--arch") + 1]}
    added = METHODS[method].format(**values).split()
    log, folder = args.out / f"{name}.log", args.out / f"{name}.run"
    half = FP16 if args.gpu else []
    command = train_command(args.data / "bin", *options, *half, *added, "--save-dir", folder, *more, user_dir=SCORES)
    start(args, command, log, append=folder.exists())  # it goes on: the epochs before stand in the log
    if args.dry_run:
        return None
    found = best_scores(log, args.scores)
    write(score, json.dumps({"method": method, "reserve_p": p, "seed": seed, "scores": found}) + "\n")
    if not args.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=lambda x: Path(x).resolve())
    parser.add_argument("out", type=lambda x: Path(x).resolve())
    parser.add_argument("--checkpoint", type=lambda x: Path(x).resolve(), help="a RoBERTa of fairseq")
    parser.add_argument("--arch-options", help="what it is (default: the sizes that the checkpoint records)")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--reserve-p", nargs="+", type=float, default=[0.3], help="shares that F, D and update keep")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--drop-token", type=float, default=0.15, help="share of tokens that droptoken drops")
    parser.add_argument("--num-classes", type=int, default=2, help="1: regression, as for STS-B")
    parser.add_argument("--scores", nargs="+", help="accuracy, mcc, f1; pearson, spearman: the first chooses the epoch")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--warmup-updates", type=int, help="default: a sixteenth of the updates")
    parser.add_argument("--pretrain-updates", type=int, default=100)
    parser.add_argument("--fisher-examples", type=int, default=1000, help="0: all")
    parser.add_argument("--gpu", action="store_true", help="one GPU and --fp16; default: the CPU")
    parser.add_argument("--keep", action="store_true", help="keep the checkpoints of every run, OUT/NAME.run")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, and run nothing")
    args = parser.parse_args(arguments)
    allowed = ("pearson", "spearman") if args.num_classes == 1 else ("accuracy", "mcc", "f1")
    args.scores = args.scores or list(allowed[: 2 if args.num_classes == 1 else 1])
    for name in args.scores:
        if name not in allowed:
            parser.error(f"--scores with --num-classes {args.num_classes} must be among {', '.join(allowed)}, got {name}")
    if args.warmup_updates is None:
        args.warmup_updates = args.updates // 16
    if args.checkpoint and not args.checkpoint.is_file() and not args.dry_run:
        sys.exit(f"--checkpoint {args.checkpoint}: no such file")  # fairseq would begin with random weights
    args.printed = set()
    return args


def find_arch(args):
    """The options that say what the model is."""
    if args.arch_options or not args.checkpoint:
        return (args.arch_options or SMALL).split()
    if args.dry_run and not args.checkpoint.is_file():
        print(f"# {args.checkpoint} is not here: for --arch ARCH put the --arch and the sizes that it records")
        return ["--arch", "ARCH"]
    return model_options(args.checkpoint)


def main(arguments=None):
    """Run everything that is not finished; returns ``[(method, share kept, [scores of each seed])]``."""
    arguments, more = split_more(sys.argv[1:] if arguments is None else arguments)
    args = parse(arguments)
    if args.dry_run:
        print(f"cd {quote([ROOT])}")
    else:
        require("matplotlib", *(["safetensors", "tqdm"] if "D" in args.methods else []))
        args.out.mkdir(parents=True, exist_ok=True)
        check_settings(args, more)
    arch = find_arch(args)
    checkpoint = args.checkpoint or pretrain(args, arch)
    rows = []
    for method in args.methods:
        for p in args.reserve_p if method in GRID else [1.0]:
            rows.append((method, p, [run_one(args, arch, checkpoint, method, p, seed, more) for seed in args.seeds]))
            if not args.dry_run:
                print(describe(*rows[-1]), flush=True)
    if not args.dry_run:
        print("\n".join(write_table(args.out / "table.md", rows, args.seeds, args.scores)))
        plot(args.out / "scores.png", rows, args.scores[0])
    return rows


if __name__ == "__main__":
    begin(main)
