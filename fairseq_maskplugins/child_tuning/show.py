"""Which share of each layer and kind of weight a mask keeps: as a table and as a plot."""

import logging
import re
from typing import Any, Dict, List, Tuple

import numpy as np

from ..errors import UsageError
from ..files import replacing

KeptCounts = Dict[Tuple[str, str], Tuple[int, int]]

KINDS = (
    ("layer norm", r"layer_?norm"),  # first: there is a self_attn_layer_norm
    ("attention", r"self_attn|encoder_attn|attn"),
    ("feed-forward", r"\bfc\d"),
    ("embedding", r"embed"),
)


def describe(name: str) -> Tuple[str, str]:
    """Layer ("layer 3", or "other") and kind of weight of a parameter's name."""
    layer = re.search(r"layers\.(\d+)\.", name)
    side = "decoder " if "decoder.layers" in name else ""
    kind = next((kind for kind, pattern in KINDS if re.search(pattern, name)), "head")
    # embeddings and the norms around them stand outside the layers
    return f"{side}layer {int(layer.group(1))}" if layer else "outside", kind


def shares(manifest: Dict[str, Any], tensors: Dict[str, np.ndarray]) -> KeptCounts:
    """Entries kept and covered, by layer and kind, in the model's order."""
    table: KeptCounts = {}
    for parameter in manifest["parameters"]:
        if parameter["covered"]:
            key = describe(parameter["name"])
            kept, total = table.get(key, (0, 0))
            mask = tensors[parameter["name"]]
            table[key] = kept + int(np.count_nonzero(mask)), total + mask.size
    return table


def format_table(table: KeptCounts, manifest: Dict[str, Any]) -> List[str]:
    """Lines of a table with one row for each layer and kind, and the sum."""
    lines = [f"{'layer':<18}{'kind':<14}{'kept':>12}{'covered':>12}{'share':>9}"]
    rows = [(*key, *value) for key, value in table.items()]
    rows.append(("all", "", sum(row[2] for row in rows), sum(row[3] for row in rows)))
    for layer, kind, kept, total in rows:
        lines.append(f"{layer:<18}{kind:<14}{kept:>12}{total:>12}{kept / max(total, 1):>9.2%}")
    apart = [p["name"] for p in manifest["parameters"] if not p["covered"]]
    if apart:
        lines.append(f"not covered: {len(apart)} parameters ({', '.join(apart[:3])}{', ...' if len(apart) > 3 else ''})")
    return lines


def describe_table(table: KeptCounts, manifest: Dict[str, Any]) -> Dict[str, Any]:
    """What :func:`format_table` shows, as plain values."""
    return {
        "reserve_p": manifest["reserve_p"],
        "kept": sum(kept for kept, _ in table.values()),
        "covered": sum(total for _, total in table.values()),
        "parts": [
            {"layer": layer, "kind": kind, "kept": kept, "covered": total, "share": kept / max(total, 1)}
            for (layer, kind), (kept, total) in table.items()
        ],
        "not_covered": [p["name"] for p in manifest["parameters"] if not p["covered"]],
    }


def plot(table: KeptCounts, manifest: Dict[str, Any], path: str) -> None:
    """Write a PNG: the kept share of each layer, a line for each kind."""
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # fairseq turns everybody's debugging on
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("--png needs matplotlib: pip install 'fairseq_maskplugins[fisher]'") from None
    layers = list(dict.fromkeys(layer for layer, _ in table))
    figure = Figure(figsize=(max(5.0, 0.5 * len(layers) + 3), 4.0), layout=None)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for kind in dict.fromkeys(kind for _, kind in table):
        at = [i for i, layer in enumerate(layers) if (layer, kind) in table]
        axes.plot(at, [table[layers[i], kind][0] / table[layers[i], kind][1] for i in at], marker="o", label=kind)
    axes.axhline(manifest["reserve_p"], color="grey", linestyle=":", label="all")
    axes.set_xticks(range(len(layers)), layers, rotation=60, ha="right", fontsize=8)
    axes.set_ylabel("share kept")
    axes.set_ylim(0, 1)
    axes.legend(fontsize=8)
    figure.tight_layout()
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
