"""The table and the plot of ``maskplugins variance`` (no fairseq)."""

import io
import logging
from typing import Dict, List, NamedTuple

from ..errors import UsageError
from .moments import Estimate


class Line(NamedTuple):
    """What was found for one masker at one pair of rates."""

    masker: str
    corruption: float
    prediction: float
    found: Dict[str, Estimate]


def render_table(lines: List[Line]) -> str:
    """A Markdown table; intervals are 95%."""
    out = [
        "| corruption, prediction | masker | loss (bits) | data term | mask term | their sum | total, directly | mask share |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        f = line.found
        both = f["data"].value + f["mask"].value
        share = f"{100 * f['mask'].value / both:.0f}%" if both > 0 else "-"
        out.append(
            f"| {line.corruption:g}, {line.prediction:g} | {line.masker} | {f['loss']} | {f['data']} | {f['mask']} | "
            f"{both:.4g} | {f['total']} | {share} |"
        )
    return "\n".join(out)


def render_plot(lines: List[Line], title: str) -> bytes:
    """Bars of both terms with their intervals, as a PNG."""
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # fairseq turns everybody's debugging on
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("--png needs matplotlib: pip install 'fairseq_maskplugins[variance]'") from None
    rates = sorted({(line.corruption, line.prediction) for line in lines})
    figure = Figure(figsize=(1.5 + 3.2 * len(rates), 3.6))
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(rates), squeeze=False, sharey=True)
    for axis, pair in zip(axes[0], rates):
        chosen = [line for line in lines if (line.corruption, line.prediction) == pair]
        for offset, term, colour in ((-0.2, "data", "#8aa9c8"), (0.2, "mask", "#d1495b")):
            places = [i + offset for i in range(len(chosen))]
            values = [line.found[term].value for line in chosen]
            errors = [line.found[term].error for line in chosen]
            axis.bar(places, values, 0.4, yerr=errors, capsize=2, label=f"{term} term", color=colour)
        axis.set_xticks(range(len(chosen)))
        axis.set_xticklabels([line.masker for line in chosen], rotation=20)
        axis.set_title(f"corruption {pair[0]:g}, prediction {pair[1]:g}", fontsize=9)
    axes[0][0].set_ylabel("trace of the gradient's covariance")
    axes[0][0].legend(fontsize=8)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()
