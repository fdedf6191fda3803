"""GLUE and CLUE with the published settings of each task: prepare, fine-tune, one table.

    python examples/finetune/benchmark.py RTE --data GLUE --out OUT --checkpoint model.pt --dict dict.txt \\
        --bpe gpt2 --gpt2-encoder-json encoder.json --gpt2-vocab-bpe vocab.bpe --dry-run
    python examples/finetune/benchmark.py glue --data GLUE --out OUT --checkpoint model.pt --dict dict.txt \\
        --sentencepiece-model sp.model --methods plain F --seeds 1 2 3 4 5
    python examples/finetune/benchmark.py clue --data CLUE --out OUT --checkpoint chinese.pt --dict dict.txt
    python examples/finetune/benchmark.py RTE ... -- --batch-size 4 --update-freq 4       # behind --: to fairseq-train

--data holds the tasks' folders as their archives unpack. The settings stand in tasks.py; --dry-run prints every command. What
is prepared or finished is kept. OUT gets a folder for each task, and table.md.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]
import prepare  # noqa: E402
import run  # noqa: E402
from commands import begin, quote, split_more, write  # noqa: E402
from tasks import CLUE, GLUE, SUITES, find_folder, read_splits, settings  # noqa: E402

TOKENIZER = ("bpe", "sentencepiece_model", "gpt2_encoder_json", "gpt2_vocab_bpe", "dict")


def options_of(args, names):
    """Options that were given, as words."""
    values = {name: getattr(args, name) for name in names}
    return [word for name, value in values.items() if value is not None for word in (f"--{name.replace('_', '-')}", str(value))]


def prepare_task(args, task, folder):
    """Binarised data of a task in ``folder``; returns how many rows train on it."""
    # CLUE's settings are in epochs: how many updates these are, the files tell
    source = find_folder(args.data, task, must=task in CLUE or not args.dry_run)
    words = ["clue" if task in CLUE else "glue", str(folder), "--source", str(source), "--task", task]
    words += options_of(args, TOKENIZER)
    if args.dry_run:
        print(quote([sys.executable, prepare.__file__, *words]))
        return len(read_splits(source, task)["train"]) if task in CLUE else None
    done = folder / "prepared.json"
    if done.exists():
        asked, _ = prepare.parse(words)
        found = json.loads(done.read_text())
        different = [name for name in (*TOKENIZER, "source") if found[name] != str(getattr(asked, name))]
        if different:
            sys.exit(f"{folder}: was prepared with another {', '.join(different)}; choose another --out")
    else:
        prepare.main(words)
    return json.loads(done.read_text())["rows"]


def finetune(args, task, folder, rows, more):
    words = [str(folder / "data"), str(folder / "runs"), "--checkpoint", str(args.checkpoint)]
    for name, value in settings(task, rows).items():
        words += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
    words += options_of(args, ("arch_options", "drop_token", "fisher_examples"))
    words += ["--methods", *args.methods, "--seeds", *map(str, args.seeds), "--reserve-p", *map(str, args.reserve_p)]
    words += [*([] if args.cpu else ["--gpu"]), *(["--keep"] if args.keep else []), *(["--dry-run"] if args.dry_run else [])]
    return run.main([*words, "--", *more])


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+", metavar="TASK", help=f"{', '.join([*SUITES['glue'], *CLUE])}; glue, clue: all")
    parser.add_argument("--data", type=Path, required=True, help="folder of the tasks' folders")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True, help="a RoBERTa of fairseq")
    parser.add_argument("--arch-options", help="what it is (default: the sizes that the checkpoint records)")
    parser.add_argument("--dict", type=Path, required=True, help="the checkpoint's dict.txt")
    parser.add_argument("--bpe", choices=prepare.PIECES, help="the checkpoint's (default: sentencepiece; CLUE: characters)")
    parser.add_argument("--sentencepiece-model", type=Path)
    parser.add_argument("--gpt2-encoder-json", type=Path)
    parser.add_argument("--gpt2-vocab-bpe", type=Path)
    parser.add_argument("--methods", nargs="+", choices=list(run.METHODS), default=["plain"])
    parser.add_argument("--reserve-p", nargs="+", type=float, default=[0.3], help="shares that F, D and update keep")
    parser.add_argument("--drop-token", type=float, help="share of tokens that droptoken drops")
    parser.add_argument("--fisher-examples", type=int, help="for D; 0: all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--cpu", action="store_true", help="to try it out, without a GPU")
    parser.add_argument("--keep", action="store_true", help="keep the checkpoints of every run")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, and run nothing")
    args = parser.parse_args(arguments)
    args.tasks = [task for name in args.tasks for task in SUITES.get(name, [name])]
    unknown = [task for task in args.tasks if task not in SUITES["glue"] + SUITES["clue"]]
    if unknown:
        parser.error(f"TASK must be among {', '.join(SUITES['glue'] + SUITES['clue'])}, glue, clue, got {', '.join(unknown)}")
    for name in ("data", "out", "checkpoint", *TOKENIZER[1:]):
        path = getattr(args, name)
        setattr(args, name, path and path.resolve())
        if path and name != "out" and not args.dry_run and not path.exists():
            sys.exit(f"--{name.replace('_', '-')} {path}: no such file or folder")
    if args.bpe is None and (args.sentencepiece_model is None) and any(task in GLUE for task in args.tasks):
        if args.gpt2_encoder_json is None:
            parser.error("give the checkpoint's tokenizer: --sentencepiece-model FILE, or --bpe gpt2 and its files")
    return args


def write_table(path, results):
    lines = ["| task | method | share kept | score, % | mean over seeds |", "|---|---|---|---|---|"]
    for task, rows in results.items():
        for method, p, found in rows:
            for name in found[0]:
                mean = sum(scores[name] for scores in found) / len(found)
                kept = f"{p:g}" if method in run.GRID else "all"
                lines.append(f"| {task} | {method} | {kept} | {name} | {mean:.2f} |")
    write(path, "\n".join(lines) + "\n")
    return lines


def main(arguments=None):
    arguments, more = split_more(sys.argv[1:] if arguments is None else arguments)
    args = parse(arguments)
    results = {}
    for task in args.tasks:
        print(f"# {task}", flush=True)
        folder = args.out / task
        rows = prepare_task(args, task, folder / "data")
        results[task] = finetune(args, task, folder, rows, more)
        if not args.dry_run:
            write_table(args.out / "table.md", results)
    if not args.dry_run:
        print("\n" + (args.out / "table.md").read_text())


if __name__ == "__main__":
    begin(main)
