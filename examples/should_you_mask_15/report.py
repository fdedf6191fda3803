"""The study's table and figure, from what its runs found (``run.collect``)."""

import io
import logging
import os
import statistics


def summarise(values):
    """``(mean, standard deviation of a sample, lowest, highest)``; the deviation is None for a single value."""
    spread = statistics.stdev(values) if len(values) > 1 else None
    return statistics.mean(values), spread, min(values), max(values)


def gather(runs, part, key):
    """``{setting: [a value for each seed]}`` in the order of the runs, of the settings that have any."""
    found = {}
    for run in runs:
        if part in run:
            found.setdefault(run["setting"], []).append(run[part][key])
    return found


def cell(values, digits):
    if not values:
        return "-"
    mean, spread, low, high = summarise(values)
    if spread is None:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {spread:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def name_of(rates):
    """What a row is called: the masking rate, or both rates where they differ."""
    if rates is None:
        return "no pretraining"
    corruption, prediction = rates
    return f"{corruption:.0%}" if corruption == prediction else f"{corruption:.0%} corrupted, {prediction:.0%} predicted"


def sum_times(runs):
    """Processor time of all steps, and the time in which at least one was running: ``{"processor": s, "wall": s}``.

    A step that was interrupted counts with its last part only, in both.
    """
    steps = [part for run in runs for part in run.values() if isinstance(part, dict)]
    wall, last = 0.0, float("-inf")
    for began, ended in sorted(step["time"] for step in steps):
        wall += max(0.0, ended - max(began, last))
        last = max(last, ended)
    return {
        "processor": round(sum(step["processor_seconds"] for step in steps), 1),
        "wall": round(wall, 1),
        "interrupted": sum(not step["whole"] for step in steps),
    }


def write_table(runs, tasks, settings, rows, times, rate):
    seeds = sorted({run["seed"] for run in runs})
    names = {run["setting"]: name_of(run["rates"]) for run in runs}
    columns = ["pretraining: masked", f"loss at {rate:.0%} masks, bits"]
    columns += [f"{task}, accuracy in %" for task in tasks] + ["pretraining, processor s"]
    losses = gather(runs, "loss", "loss")
    scores = {task: gather(runs, task, "test") for task in tasks}
    spent = gather([run for run in runs if run.get("pretrain", {}).get("whole")], "pretrain", "processor_seconds")
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for setting, name in names.items():
        cells = [name, cell(losses.get(setting), 3), *(cell(scores[task].get(setting), 1) for task in tasks)]
        cells.append(f"{statistics.mean(spent[setting]):.0f}" if setting in spent else "-")
        lines.append("| " + " | ".join(cells) + " |")
    sizes = "; ".join(f"{task}: {rows[task]['train']:,} labelled texts, {rows[task]['test']:,} in the test" for task in tasks)
    lines += [
        "",
        f"Mean ± standard deviation (lowest to highest) over {len(seeds)} seed{'s' * (len(seeds) > 1)} "
        f"({', '.join(map(str, seeds))}). {settings['updates']} updates of {settings['rows']} rows of {settings['length']} "
        f"tokens, then {settings['finetune_updates']} of 32 texts; scores on the test texts after the last one. {sizes}. "
        f"All steps together: {times['processor'] / 60:.0f} minutes of processor time in {times['wall'] / 60:.0f} minutes"
        + (f"; of {times['interrupted']} that were interrupted only the last part counts." if times["interrupted"] else "."),
    ]
    return "\n".join(lines) + "\n"


def draw(runs, tasks, path, rate):
    """Score against masking rate, a panel for each task, and the loss: mean with lowest and highest of the seeds.

    Settings with one rate are joined by a line; those with two stand at the side, no pretraining is a band.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # fairseq turns everybody's debugging on
    rates = {run["setting"]: run["rates"] for run in runs}
    single = [name for name, pair in rates.items() if pair and pair[0] == pair[1]]
    pairs = [name for name, pair in rates.items() if pair and pair[0] != pair[1]]
    panels = [(task, gather(runs, task, "test"), "accuracy, %") for task in tasks]
    panels.append((f"held-out text, {rate:.0%} masked", gather(runs, "loss", "loss"), "loss, bits"))
    figure = Figure(figsize=(3.9 * len(panels), 3.6))
    FigureCanvasAgg(figure)
    for axes, (title, values, label) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels):
        places = {name: 100 * rates[name][0] for name in single}
        places.update({name: 108 + 22 * i for i, name in enumerate(pairs)})
        if "none" in values:
            mean, _, low, high = summarise(values["none"])
            axes.axhspan(low, high, color="0.9", lw=0)
            axes.axhline(mean, color="0.5", lw=1, ls="--", label="no pretraining")
        for names, style, color, legend in (
            (single, "o-", "C0", "as many predicted as masked (bars: all seeds)"),
            (pairs, "s", "C1", "masked / predicted"),
        ):
            names = [name for name in names if name in values]
            if not names:
                continue
            stats = [summarise(values[name]) for name in names]
            bars = [[mean - low for mean, _, low, _ in stats], [high - mean for mean, _, _, high in stats]]
            x = [places[name] for name in names]
            axes.errorbar(x, [s[0] for s in stats], bars, fmt=style, color=color, capsize=3, ms=5, lw=1.3, label=legend)
            for name in names:
                axes.plot([places[name]] * len(values[name]), values[name], ".", color=color, alpha=0.45, ms=5)
        axes.set_xticks(
            list(places.values()),
            [f"{100 * rates[n][0]:.0f}" for n in single] + ["/".join(f"{100 * r:.0f}" for r in rates[n]) for n in pairs],
        )
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("masked, % of the tokens")
        axes.set_ylabel(label)
        axes.grid(axis="y", color="0.92")
        axes.set_axisbelow(True)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    figure.legend(handles, labels, loc="lower center", ncol=3, fontsize=9, frameon=False)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=130)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    temporary.write_bytes(picture.getvalue())
    os.replace(temporary, path)
