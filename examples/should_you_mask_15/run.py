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
from study import COMMON_RATE, LENGTH, MODEL, SETTINGS, collect, plan

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from commands import begin, require, write  # noqa: E402

HERE = Path(__file__).resolve().parent


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
                sys.exit(f"{args.out}: holds a study with {option} {before.get(name)}, got {value}; choose another folder")
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
        known = {} if args.text else {"topics": 11, "reviews": 2}
        args.classes = {task: known.get(task, "CLASSES") for task in args.tasks}  # the texts tell, once they are there
        for chain in plan(args):
            print("\n".join(step.describe() for step in chain))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated; the same command goes on"))
    require("matplotlib")
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
    begin(main)
