"""What the runs of a recipe found: read from their logs, said in a line, put in a table and a plot."""

import json
import logging
import re
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from commands import write  # noqa: E402

GRID = ("F", "D", "update")  # the methods that --reserve-p is for


def best_scores(log, names):
    """All scores in percent of the epoch whose first one is best, from the log of a run."""
    epochs = [json.loads(x) for x in re.findall(r"\| valid \| (\{.*\})", Path(log).read_text(encoding="utf-8"))]
    found = [{name: float(epoch.get(f"valid_{name}", "nan")) for name in names} for epoch in epochs]
    found = [epoch for epoch in found if epoch[names[0]] == epoch[names[0]]]
    if not found:
        sys.exit(f"{log}: no {names[0]} on the validation data that is a number")
    return max(found, key=lambda epoch: epoch[names[0]])


def describe(method, p, found):
    """The scores of a method's seeds, in one line."""
    share = f" {p:g}" if method in GRID else ""
    scores = [f"{name}, %: {' '.join(f'{scores[name]:.2f}' for scores in found)}" for name in found[0]]
    return f"{method}{share}: {'; '.join(scores)}"


def write_table(path, rows, seeds, names):
    titles = [f"{name}, %" for name in names]
    head = ["method", "share kept", f"mean {titles[0]}", "standard deviation", *(f"mean {t}" for t in titles[1:])]
    lines = ["| " + " | ".join([*head, *(f"seed {seed}" for seed in seeds)]) + " |", "|" + "---|" * (len(head) + len(seeds))]
    for method, p, found in rows:
        first = [scores[names[0]] for scores in found]
        means = [statistics.mean(scores[name] for scores in found) for name in names]
        spread = f"{statistics.stdev(first):.2f}" if len(first) > 1 else "n/a (one seed)"
        kept = f"{p:g}" if method in GRID else "all"
        cells = [method, kept, f"{means[0]:.2f}", spread, *(f"{x:.2f}" for x in (*means[1:], *first))]
        lines.append("| " + " | ".join(cells) + " |")
    write(path, "\n".join(lines) + "\n")
    return lines


def plot(path, rows, name):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # fairseq turns everybody's debugging on
    figure = Figure(figsize=(1.5 + 1.1 * len(rows), 3.5))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for i, (_, _, found) in enumerate(rows):
        scores = [scores[name] for scores in found]
        axes.plot([i] * len(scores), scores, "o", alpha=0.5)
        axes.plot([i - 0.25, i + 0.25], [statistics.mean(scores)] * 2, "k-")
    axes.set_xticks(range(len(rows)), [f"{m} {p:g}" if m in GRID else m for m, p, _ in rows])
    axes.set_ylabel(f"{name}, %")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
