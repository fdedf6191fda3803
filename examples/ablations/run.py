"""Pretrain with each setting of the 40% paper's ablations, one after the other, and put what was measured in one table.

    python examples/ablations/run.py --list
    python examples/ablations/run.py data-bin OUT --gpus 8 --only corruption-prediction --dry-run
    python examples/ablations/run.py data-bin OUT --gpus 8 --only corruption-prediction replacement
    python examples/ablations/run.py data-bin OUT --gpus 8 --only span-40 pmi-40 \\
        --bpe-options '--bpe gpt2 --gpt2-encoder-json encoder.json --gpt2-vocab-bpe vocab.bpe' --pmi-vocab phrases.txt
    python examples/ablations/run.py data-bin OUT --only rates -- --arch roberta_base     # behind --: to fairseq-train

Each run is examples/pretrain_24h/run.sh with the flags of sweep.yaml. A run that is finished is kept, one that was
interrupted goes on; OUT gets a folder for each, with its log and checkpoints, and table.md.
"""

import argparse
import json
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from commands import ROOT, begin, call, quote, split_more, write  # noqa: E402

SWEEP = Path(__file__).resolve().parent / "sweep.yaml"
RECIPE = ROOT / "examples" / "pretrain_24h" / "run.sh"


def read_sweep(path=SWEEP):
    """``({run: flags}, {group: [run, ...]})`` of a sweep file."""
    import yaml  # comes with fairseq

    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        runs = {str(name): str(flags) for name, flags in found["runs"].items()}
        groups = {str(name): _flat(members) for name, members in (found.get("groups") or {}).items()}
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        sys.exit(f"{path}: can't read the sweep (runs: NAME: FLAGS, groups: NAME: [RUN, ...]): {_line(error)}")
    for name in runs:
        if not re.fullmatch(r"[\w.-]+", name):
            sys.exit(f"{path}: a run's name is its folder: letters, digits, '.', '_' and '-', got {name}")
    for group, members in groups.items():
        unknown = [name for name in members if name not in runs]
        if unknown or group in runs:
            what = f"names runs that are not there: {', '.join(unknown)}" if unknown else "has the name of a run"
            sys.exit(f"{path}: group {group} {what}")
    return runs, groups


def _flat(members):
    return [name for part in members for name in (part if isinstance(part, list) else [str(part)])]


def _line(error):
    return " ".join(str(error).split())


def choose(names, runs, groups):
    """The runs that names of runs and groups stand for, each once, in the order of the file; all without names."""
    unknown = [name for name in names if name not in runs and name not in groups]
    if unknown:
        sys.exit(f"--only must name runs or groups of the sweep (see --list), got {', '.join(unknown)}")
    wanted = {run for name in names for run in groups.get(name, [name])}
    return [run for run in runs if not names or run in wanted]


def fill_in(name, flags, args):
    """The words of a run's flags, with what the user's tokenizer and phrases are."""
    values = {"bpe": args.bpe_options, "pmi_vocab": args.pmi_vocab and shlex.quote(str(args.pmi_vocab.resolve()))}
    for key, value in values.items():
        if "{" + key + "}" in flags:
            if not value:
                sys.exit(f"run {name} needs --{'bpe-options' if key == 'bpe' else 'pmi-vocab'}")
            flags = flags.replace("{" + key + "}", value)
    return shlex.split(flags)


def recipe(args, name, flags, more):
    """The call of the 24-hour recipe that a run is."""
    device = ["--cpu"] if args.cpu else ["--gpus", args.gpus]
    rows = max(1, args.rows // count_copies(flags))
    return ["bash", RECIPE, *device, "--rows", rows, args.data, args.out / name, "--", *flags, *more]


def count_copies(flags):
    """How often a row stands in a batch: where more is predicted than corrupted, several times."""
    rates = dict(zip(flags, flags[1:]))
    quotient = float(rates.get("--prediction-rate", 1)) / float(rates.get("--corruption-rate", 1))
    return max(1, math.ceil(quotient - 1e-9))


def train(command, folder):
    """Run it, or go on with it; returns what it measured. A finished run is not run again."""
    folder.mkdir(parents=True, exist_ok=True)
    settings, found = folder / "command.txt", folder / "found.json"
    line = quote(command) + "\n"
    if settings.exists() and settings.read_text() != line:
        sys.exit(f"{folder}: holds a run of another command (see command.txt there), got {line.strip()}; choose another OUT")
    if found.exists():
        return json.loads(found.read_text())
    write(settings, line)
    measured = measure(call(command, folder / "train.log", append=True), folder / "train.log")
    write(found, json.dumps(measured) + "\n")
    return measured


def measure(text, path):
    """What the log of a whole run says at its end."""
    valid = re.findall(r"\| valid on 'valid' subset \| loss ([\d.]+|nan).*?\| num_updates (\d+)", text)
    rates = re.findall(r"corruption_rate=([\d.]+), prediction_rate=([\d.]+).*?num_updates=(\d+)", text)
    if not valid or not rates:
        sys.exit(f"{path}: no validation, or no updates, in the log of a run that ended")
    loss, updates = valid[-1]
    return {"loss": float(loss), "updates": int(updates), "corruption": float(rates[-1][0]), "prediction": float(rates[-1][1])}


def write_table(path, results):
    lines = [
        "| run | corrupted | predicted | updates | validation loss, bits |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {m['corruption']:.3f} | {m['prediction']:.3f} | {m['updates']} | {m['loss']:.3f} |"
            for name, m in results.items()
        ),
        "",
        "Each run is validated with masks of its own kind and rates: losses compare between runs that mask alike (another "
        "seed, another model), not between rates, maskers or replacements. The paper compares scores after fine-tuning: "
        "examples/finetune, examples/squad.",
    ]
    write(path, "\n".join(lines) + "\n")
    return lines


def main(arguments=None):
    arguments, more = split_more(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="what fairseq-preprocess wrote; several folders: joined by ':'")
    parser.add_argument("out", nargs="?", type=Path, help="gets a folder for each run, and table.md")
    parser.add_argument("--list", action="store_true", help="print groups, runs and their flags")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="runs or groups (default: all runs)")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of this machine (default: 8)")
    parser.add_argument("--rows", type=int, default=64, help="rows on a GPU at a time, copies counted (default: 64)")
    parser.add_argument("--cpu", action="store_true", help="to try it out, without a GPU")
    parser.add_argument("--bpe-options", help="the data's tokenizer, for whole words: '--bpe gpt2 ...'")
    parser.add_argument("--pmi-vocab", type=Path, help="phrases, for the runs that mask them")
    parser.add_argument("--sweep", type=Path, default=SWEEP, help="another sweep file (default: sweep.yaml beside this)")
    parser.add_argument("--dry-run", action="store_true", help="print the command of each run, and run nothing")
    args = parser.parse_args(arguments)
    runs, groups = read_sweep(args.sweep)
    if args.list:
        for group, members in groups.items():
            print(f"{group}: {' '.join(members)}")
        print()
        for name in choose(args.only, runs, groups):
            print(f"{name}: {runs[name]}")
        return
    if args.out is None:
        parser.error("give DATA and OUT, or --list")
    args.out = args.out.resolve()
    args.data = ":".join(str(Path(folder).resolve()) for folder in args.data.split(":"))
    commands = {name: recipe(args, name, fill_in(name, runs[name], args), more) for name in choose(args.only, runs, groups)}
    if args.dry_run:
        for name, command in commands.items():
            at = command.index("--")
            words = [str(word) for word in [*command[:at], "--dry-run", *command[at:]]]
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr.strip())
            print(f"# {name}\n{done.stdout.strip()}")
        return
    results = {}
    for name, command in commands.items():
        print(f"{name}: {quote(command)}", flush=True)
        results[name] = train(command, args.out / name)
        write_table(args.out / "table.md", results)
    print("\n" + (args.out / "table.md").read_text())


if __name__ == "__main__":
    begin(main)
