"""Uniform masks against MAP-Net's from the same seeds: validation loss by updates and time, and the masks' variance.

    python examples/mapnet/run.py OUT [--methods uniform mapnet] [--seeds 1 2 3] [--updates 1000]

Data: lead sections of the English Wikipedia, fetched and encoded as scripts/quickstart.sh does it, unless --data names a
data directory. An update has as many masked rows either way: uniform masks 128 rows once, mapnet 64 rows twice. A run that
is done is not run again. OUT gets table.md, curves.png, and a log, checkpoints and figures for each run.
"""

import argparse
import importlib.util
import json
import logging
import math
import re
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from commands import ROOT, begin, call, require, train_command, write  # noqa: E402

MAPNET = "--criterion mapnet --batch-size {half} --mapnet-warmup-updates {warmup}"
METHODS = {
    "uniform": "--criterion decoupled_mlm --batch-size {rows}",
    # half the sentences, two uniform masks each: what pairs alone do
    "uniform-pairs": MAPNET + " --mapnet-uniform-mix 1",
    "mapnet": MAPNET,
    # what else was tried
    "mapnet-mix-0.1": MAPNET + " --mapnet-uniform-mix 0.1",
    "mapnet-early": "--criterion mapnet --batch-size {half} --mapnet-warmup-updates 0",
    "mapnet-beta-4": MAPNET + " --mapnet-beta 4",
    "mapnet-no-weights": MAPNET + " --mapnet-weights none",
    "mapnet-no-clipping": MAPNET + " --max-importance-weight inf",
    "mapnet-lr-0.3": MAPNET + " --mapnet-lr-scale 0.3",
    # twice the cost: as many sentences as uniform
    "mapnet-twice": "--criterion mapnet --batch-size {rows} --mapnet-warmup-updates {warmup}",
}
SMALL = (
    "--arch roberta_base --untie-weights-roberta --encoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 "
    "--encoder-attention-heads 4 --max-positions 16 --tokens-per-sample 16"
)


def prepare(args):
    """The data directory and the sentencepiece model."""
    if args.data:
        return args.data, args.sentencepiece_model
    spec = importlib.util.spec_from_file_location("quickstart", ROOT / "scripts" / "quickstart.py")
    quickstart = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(quickstart)
    for done, step in (("train.txt", quickstart.fetch_text), ("valid.sp", quickstart.encode), ("data-bin", quickstart.binarize)):
        if not (args.out / done).exists():
            step(args.out)
    return args.out / "data-bin", args.out / "sp.model"


def pretrain(args, data, pieces, method, seed):
    """Train once, or read what an earlier call found: ``{"curve": [[update, seconds, loss], ...], "mapnet": [...]}``."""
    folder = args.out / f"{method}-{seed}"
    if (folder / "found.json").exists():
        found = json.loads((folder / "found.json").read_text())
        for name in ("updates", "masked_rows"):
            if found.get(name, getattr(args, name)) != getattr(args, name):
                option = "--" + name.replace("_", "-")
                sys.exit(f"{folder} holds a run with {option} {found[name]}, got {getattr(args, name)}: choose another OUT")
        return found
    folder.mkdir(parents=True, exist_ok=True)
    command = train_command(data)
    command += f"""
        --task decoupled_mlm --mask-prob {args.rate} {args.model_options}
        --dropout 0.0 --attention-dropout 0.0 --optimizer adam --adam-betas (0.9,0.98) --weight-decay 0.01 --clip-norm 1.0
        --lr 0.002 --lr-scheduler polynomial_decay --warmup-updates {min(100, args.updates // 2)}
        --total-num-update {args.updates} --max-update {args.updates} --num-workers 0 --seed {seed}
        --validate-interval-updates {args.every} --validate-interval 1000 --batch-size-valid 256
        --save-interval-updates {min(5 * args.every, args.updates)} --no-epoch-checkpoints --no-last-checkpoints --log-format json
        --log-interval {args.every}
    """.split()
    rows = dict(rows=args.masked_rows, half=args.masked_rows // 2)
    command += METHODS[method].format(warmup=args.warmup, **rows).split() + ["--save-dir", folder / "checkpoints"]
    command += ["--bpe", "sentencepiece", "--sentencepiece-model", pieces] if pieces else []
    command += [] if args.gpu else ["--cpu"]
    text = call(command, folder / "train.log", OMP_NUM_THREADS="1")
    steps = [json.loads(x) for x in re.findall(r"\| train_inner \| (\{.*\})", text)]
    seconds = {int(s["num_updates"]): float(s["train_wall"]) for s in steps}
    valid = [json.loads(x) for x in re.findall(r"\| valid \| (\{.*\})", text)]
    total, walls = 0.0, {}
    for update in sorted(seconds):  # train_wall counts from one log line to the next
        total += seconds[update]
        walls[update] = total
    curve = {int(v["valid_num_updates"]): float(v["valid_loss"]) for v in valid}
    found = {
        "updates": args.updates,
        "masked_rows": args.masked_rows,
        "curve": [[u, walls.get(u, math.nan), loss] for u, loss in sorted(curve.items())],
        "last": {k: v for k, v in steps[-1].items() if k.startswith(("propos", "prefer", "effect", "clip"))},
    }
    write(folder / "found.json", json.dumps(found, indent=1))
    return found


def measure(args, data, method, seed):
    """The variance of both kinds of masks at the checkpoints of a MAP-Net run: ``[[update, {masker: terms}], ...]``."""
    folder, found = args.out / f"{method}-{seed}", []
    checkpoints = {int(p.stem.split("_")[-1]): p for p in (folder / "checkpoints").glob("checkpoint_*_*.pt")}
    for update, checkpoint in sorted(checkpoints.items()):
        out = folder / f"variance-{update}.json"
        if not out.exists():
            command = [sys.executable, "-m", "fairseq_maskplugins.cli", "variance", checkpoint, data]
            command += ["--maskers", "uniform", "mapnet", "--rows", args.rows, "--masks", 8, "--groups", 8]
            call(command + ["--cpu", "--json", out], folder / "variance.log", OMP_NUM_THREADS="1")
        found.append([update, {line["masker"]: line["found"] for line in json.loads(out.read_text())["lines"]}])
    return found


def steps_to(curve, loss):
    """The first update whose validation loss is at most ``loss``, or None."""
    return next((update for update, _, found in curve if found <= loss), None)


def table(args, runs, variances):
    lines = [
        f"{args.updates} updates of {args.masked_rows} masked rows; validation loss in bits a token, "
        "mean (lowest to highest) of seeds "
        f"{', '.join(map(str, args.seeds))}\n",
        "| method | last loss | updates to uniform's last loss | seconds an update |",
        "|---|---|---|---|",
    ]
    goals = {seed: runs["uniform", seed]["curve"][-1][2] for seed in args.seeds if ("uniform", seed) in runs}
    for method in args.methods:
        found = {seed: runs[method, seed]["curve"] for seed in args.seeds}
        last = [curve[-1][2] for curve in found.values()]
        reached = [steps_to(curve, goals[seed]) if seed in goals else None for seed, curve in found.items()]
        pace = statistics.median(curve[-1][1] / curve[-1][0] for curve in found.values())
        spread = f"{statistics.mean(last):.3f} ({min(last):.3f} to {max(last):.3f})"
        lines.append(f"| {method} | {spread} | {', '.join(str(r or 'never') for r in reached)} | {pace:.3f} |")
    for (method, seed), found in variances.items():
        lines += [
            f"\nGradient variance of `{method}`, seed {seed}, per row\n",
            "| update | data term | mask term, uniform | mask term, mapnet |",
            "|---|---|---|---|",
        ]
        for update, f in found:
            cells = [f["uniform"]["data"], f["uniform"]["mask"], f["mapnet"]["mask"]]
            lines.append(f"| {update} | " + " | ".join(f"{c['value']:.4g} ± {c['error']:.2g}" for c in cells) + " |")
    return "\n".join(lines) + "\n"


def plot(args, runs, path):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # fairseq turns everybody's debugging on
    figure = Figure(figsize=(9, 3.6))
    FigureCanvasAgg(figure)
    for axis, column, label in zip(figure.subplots(1, 2, sharey=True), (0, 1), ("updates", "seconds of training")):
        for number, method in enumerate(args.methods):
            for seed in args.seeds:
                curve = runs[method, seed]["curve"]
                name = method if seed == args.seeds[0] else None
                axis.plot([p[column] for p in curve], [p[2] for p in curve], color=f"C{number}", lw=1.2, label=name)
        axis.set_xlabel(label)
    figure.axes[0].set_ylabel("validation loss (bits)")
    figure.axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--data", type=Path, help="a data directory (default: Wikipedia's lead sections)")
    parser.add_argument("--sentencepiece-model", type=Path, help="of --data, to tell begins of words")
    parser.add_argument("--methods", nargs="+", choices=sorted(METHODS), default=["uniform", "uniform-pairs", "mapnet"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--masked-rows", type=int, default=128, help="masked rows of an update, an even number")
    parser.add_argument("--warmup", type=int, default=500, help="updates before MAP-Net masks (its pairs are uniform)")
    parser.add_argument("--every", type=int, default=50, help="updates between validations")
    parser.add_argument("--rate", type=float, default=0.4)
    parser.add_argument("--rows", type=int, default=64, help="rows for the variance")
    parser.add_argument("--model-options", default=SMALL)
    parser.add_argument("--gpu", action="store_true")
    args = parser.parse_args()
    for name in ("out", "data", "sentencepiece_model"):  # fairseq runs in another folder
        path = getattr(args, name)
        setattr(args, name, path and Path(path).resolve())
    require("matplotlib", "tqdm", "sentencepiece")
    args.out.mkdir(parents=True, exist_ok=True)
    data, pieces = prepare(args)
    runs, variances = {}, {}
    for seed in args.seeds:  # seeds outside: where the machine gets slower over time, all methods do
        for method in args.methods:
            runs[method, seed] = pretrain(args, data, pieces, method, seed)
            print(f"{method}, seed {seed}: {runs[method, seed]['curve'][-1][2]:.3f} bits", flush=True)
    for method in args.methods:
        if method.startswith("mapnet"):
            variances[method, args.seeds[0]] = measure(args, data, method, args.seeds[0])
    text = table(args, runs, variances)
    write(args.out / "table.md", text)
    plot(args, runs, args.out / "curves.png")
    print(text)


if __name__ == "__main__":
    begin(main)
