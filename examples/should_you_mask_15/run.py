"""The study of "Should You Mask 15% in Masked Language Modeling?" (arXiv 2202.08005) in miniature, on two CPU cores.

    python examples/should_you_mask_15/run.py OUT [--dry-run] [--seeds 1 2 3] [--only none 0.15 0.4 0.8 0.4-0.2 0.2-0.4]

For every setting and seed a small RoBERTa is pretrained with that corruption and prediction rate, its loss is measured at
one rate that is the same for all, and it is fine-tuned on each task; "none" is fine-tuned from random weights. The texts
are fetched (Wikipedia's lead sections, movie-review snippets). OUT gets table.md, figure.png and results.json; what is
finished is kept, so the same command goes on where it was interrupted.
"""

import argparse
import fcntl
import json
import signal
import sys
from pathlib import Path

import data
import report
from jobs import Step, run_chains

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from commands import PLUGINS, write  # noqa: E402

HERE = Path(__file__).resolve().parent
# what is pretrained: (corruption rate, prediction rate); the pairs are the paper's
SETTINGS = {
    "none": None,
    "0.15": (0.15, 0.15),
    "0.4": (0.4, 0.4),
    "0.8": (0.8, 0.8),
    "0.4-0.2": (0.4, 0.2),
    "0.2-0.4": (0.2, 0.4),
}
COMMON_RATE = 0.15  # at which the loss of every model is measured
LENGTH = 16
MODEL = (
    "--arch roberta_base --untie-weights-roberta --encoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 "
    f"--encoder-attention-heads 4 --max-positions {LENGTH}"
)
ADAM = "--optimizer adam --adam-betas (0.9,0.98) --weight-decay 0.01 --clip-norm 1.0 --lr-scheduler polynomial_decay".split()


def pretrain_command(args, folder, setting, seed):
    corruption, prediction = SETTINGS[setting]
    updates = args.updates
    return [
        *(
            "fairseq_cli.train",
            args.out / "data" / "pretrain",
            "--user-dir",
            PLUGINS,
            *args.model_options.split(),
            *ADAM,
        ),
        *"--task decoupled_mlm --criterion decoupled_mlm --sample-break-mode eos --shorten-method truncate".split(),
        *"--dropout 0.0 --attention-dropout 0.0".split(),
        *("--corruption-rate", corruption, "--prediction-rate", prediction, "--tokens-per-sample", args.length),
        *("--lr", args.lr, "--warmup-updates", updates // 10, "--total-num-update", updates, "--max-update", updates),
        *("--batch-size", args.rows, "--num-workers", 0, "--seed", seed, "--disable-validation"),
        *("--save-interval-updates", max(1, updates // 4), "--keep-interval-updates", 1, "--no-epoch-checkpoints"),
        *("--log-format", "json", "--log-interval", max(1, updates // 10), "--cpu", "--save-dir", folder),
    ]


def measure_command(args, checkpoint):
    """The loss on the held-out text, at the common rate, whatever the model was trained at."""
    return [
        *("fairseq_cli.validate", args.out / "data" / "pretrain", "--user-dir", PLUGINS, "--path", checkpoint),
        *("--task", "decoupled_mlm", "--mask-prob", COMMON_RATE, "--tokens-per-sample", args.length),
        *("--corruption-rate", COMMON_RATE, "--prediction-rate", COMMON_RATE, "--seed", 1, "--valid-subset", "valid"),
        *"--sample-break-mode eos --shorten-method truncate --required-batch-size-multiple 1 --batch-size 256 "
        "--num-workers 0 --log-format json --cpu".split(),
    ]


def finetune_command(args, checkpoint, task, seed):
    updates = args.finetune_updates
    start = ["--finetune-from-model", checkpoint] if checkpoint else []
    return [
        *("fairseq_cli.train", args.out / "data" / task, "--user-dir", PLUGINS, *args.model_options.split(), *ADAM),
        *"--task sentence_prediction --criterion sentence_prediction --init-token 0 --separator-token 2".split(),
        *(
            "--num-classes",
            args.classes[task],
            "--shorten-method",
            "truncate",
            "--dropout",
            0.1,
            "--attention-dropout",
            0.1,
        ),
        *("--lr", args.finetune_lr, "--warmup-updates", updates // 10, "--total-num-update", updates),
        *("--max-update", updates, "--batch-size", 32, "--batch-size-valid", 256, "--num-workers", 0, "--seed", seed),
        # both parts are scored once, after the last update: no checkpoint is chosen
        *"--required-batch-size-multiple 1 --valid-subset valid,test --validate-interval 100000".split(),
        *"--no-save --log-format json --cpu".split(),
        *("--log-interval", updates, *start),
    ]


def logged(text, marker, key):
    """The last value of a key in fairseq's log."""
    lines = [line.split(marker, 1)[1] for line in text.splitlines() if marker in line]
    return float(json.loads(lines[-1])[key])


def read_pretrained(text):
    return {
        "updates": int(logged(text, "| train_inner | ", "num_updates")),
        "train_loss": logged(text, "| train_inner | ", "loss"),
        "corruption": logged(text, "| train_inner | ", "corruption_rate"),
        "prediction": logged(text, "| train_inner | ", "prediction_rate"),
    }


def read_measured(text):
    return {"loss": logged(text, "| valid | ", "valid_loss")}


def read_finetuned(text):
    return {"dev": logged(text, "| valid | ", "valid_accuracy"), "test": logged(text, "| test | ", "test_accuracy")}


def plan(args):
    """A chain of steps for each seed and setting; seeds outside, so that a study cut short has all settings."""
    chains, runs = [], args.out / "runs"
    for seed in args.seeds:
        for setting in args.only:
            name, chain, checkpoint = f"{setting}-seed{seed}", [], None
            if SETTINGS[setting]:
                folder = runs / name
                checkpoint = folder / "checkpoint_last.pt"
                command = pretrain_command(args, folder, setting, seed)
                chain.append(Step(runs / f"{name}-pretrain", command, read_pretrained, restarts=checkpoint))
                chain.append(Step(runs / f"{name}-loss", measure_command(args, checkpoint), read_measured))
            for task in args.tasks:
                command = finetune_command(args, checkpoint, task, seed)
                chain.append(Step(runs / f"{name}-{task}", command, read_finetuned))
            chains.append(chain)
    return chains


def collect(args):
    """What the finished steps found: ``[{"setting": ..., "seed": ..., "pretrain": {...}, "loss": {...}, TASK: {...}}]``."""
    found = []
    for seed in args.seeds:
        for setting in args.only:
            one = {"setting": setting, "rates": SETTINGS[setting], "seed": seed}
            for part in ("pretrain", "loss", *args.tasks):
                path = args.out / "runs" / f"{setting}-seed{seed}-{part}.json"
                if path.exists():
                    one[part] = json.loads(path.read_text())
            found.append(one)
    return found


def check_settings(args):
    """What is in OUT stays; results of other settings must not get into the same table."""
    # what the names of the files tell apart, and what changes none of them
    free = ("out", "only", "seeds", "tasks", "jobs", "dry_run")
    settings = {name: str(value) for name, value in vars(args).items() if name not in free}
    path = args.out / "settings.json"
    if path.exists():
        try:
            before = json.loads(path.read_text())
        except ValueError as error:
            sys.exit(f"{path}: is damaged ({error}); choose another folder")
        for name, value in settings.items():
            if before.get(name) != value:
                option = "--" + name.replace("_", "-")
                sys.exit(
                    f"{args.out}: holds a study with {option} {before.get(name)}, got {value}; choose another folder"
                )
    elif args.out.exists() and any(path.name != "lock" for path in args.out.iterdir()):
        sys.exit(f"{args.out}: holds something else than a study; choose another folder")
    return settings


def lock(out):
    """One study at a time in a folder; held by the processes that it starts as well, until the last one ends."""
    file = open(out / "lock", "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"{out}: another call is at work here, or processes that a killed one has left; wait until they end")
    return file


def prepare(args):
    text = args.text or args.out / "text"
    if not text.exists():
        data.split_texts(args.out / "download", text, args.labels)
    args.classes, rows = {}, {}
    for task in args.tasks:
        args.classes[task], rows[task] = data.count_labels(text, task)
    command = [HERE / "data.py", text, args.out / "data", "--vocabulary", args.vocabulary]
    run_chains([[Step(args.out / "prepare", command, lambda log: {})]], 1)
    return rows


def positive(kind):
    def parse(text):
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
        return value

    return parse


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog=__doc__.split("\n\n")[2],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("out", type=lambda x: Path(x).resolve(), metavar="OUT", help="folder for everything; made where it is missing")
    add("--dry-run", action="store_true", help="print the plan and the commands, run nothing")
    add("--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS), metavar="SETTING", help="of %(choices)s")
    add("--seeds", nargs="+", type=int, default=[1, 2, 3], metavar="SEED")
    add("--tasks", nargs="+", default=["topics", "reviews"], metavar="TASK", help="what to fine-tune on")
    add("--jobs", type=positive(int), default=2, help="processes at a time, one thread each")
    add("--updates", type=positive(int), default=600, help="of pretraining")
    add("--rows", type=positive(int), default=128, help="of an update, before copies")
    add("--length", type=positive(int), default=LENGTH, help="tokens of a row")
    add("--lr", type=positive(float), default=0.003, help="of pretraining")
    add("--finetune-updates", type=positive(int), default=200, help="with 32 texts each")
    add("--finetune-lr", type=positive(float), default=0.001)
    add("--labels", type=positive(int), default=1000, help="labelled texts of a task")
    add("--vocabulary", type=positive(int), default=3000, help="pieces")
    add("--model-options", default=MODEL, help="of fairseq-train; give it --max-positions that fit --length")
    add("--text", type=lambda x: Path(x).resolve(), help="texts of your own instead, laid out as data.py says")
    return parser.parse_args()


def main():
    args = parse_arguments()
    args.only = [name for name in SETTINGS if name in args.only]
    settings = check_settings(args)
    if args.text:
        known = data.find_tasks(args.text)
        for task in args.tasks:
            if task not in known:
                sys.exit(f"--tasks {task}: {args.text} has only {', '.join(known)}")
    elif not set(args.tasks) <= {"topics", "reviews"}:
        sys.exit(f"--tasks {' '.join(args.tasks)}: without --text there are topics and reviews")
    if args.dry_run:
        args.classes = dict.fromkeys(args.tasks, "CLASSES")
        for chain in plan(args):
            print("\n".join(step.describe() for step in chain))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated; the same command goes on"))
    args.out.mkdir(parents=True, exist_ok=True)
    with lock(args.out):
        write(args.out / "settings.json", json.dumps(settings, indent=1) + "\n")
        try:
            rows = prepare(args)
            run_chains(plan(args), args.jobs)
        except KeyboardInterrupt:
            sys.exit("interrupted; the same command goes on")
        runs = collect(args)
        prepared = json.loads((args.out / "prepare.json").read_text())
        times = report.sum_times([{"prepare": prepared}, *runs])
        text = report.write_table(runs, args.tasks, settings, rows, times, COMMON_RATE)
        results = {"settings": settings, "rows": rows, "times": times, "runs": runs}
        write(args.out / "results.json", json.dumps(results, indent=1) + "\n")
        write(args.out / "table.md", text)
        report.draw(runs, args.tasks, args.out / "figure.png", COMMON_RATE)
    print(f"\n{text}\n{args.out / 'table.md'}, figure.png, results.json")


if __name__ == "__main__":
    main()
