"""The HTML page: rows, figures and plots in one file that needs nothing else (no fairseq here)."""

from html import escape
from typing import Dict, Iterable, List, Sequence, Tuple

from .measure import KEPT, MASKED, RANDOM, SAME, Token, Totals, join_units
from .svg import COLOURS, Plot, plot_bars, plot_histograms

_CLASS = {MASKED: "masked", RANDOM: "random", SAME: "same"}

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 76em; padding: 0 1.5em; color: #222; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin: 1.8em 0 .5em; }
code { background: #f2f2f2; padding: .1em .35em; border-radius: 3px; overflow-wrap: anywhere; }
p.row { margin: .5em 0; padding: .5em .8em; background: #fafafa; border-left: 3px solid #ddd; overflow-wrap: anywhere; }
p.copy { margin-left: 2em; }
span.unit { border-left: 1px solid #bbb; }
span.masked { background: #f6c1c1; } span.random { background: #fae08a; } span.same { background: #b8e2e6; }
span.unpredicted { text-decoration: line-through; }
span.special { color: #999; }
sub { color: #7a5b00; }
table { border-collapse: collapse; } td, th { padding: .25em .9em; border-bottom: 1px solid #ddd; text-align: right; }
td:first-child, th:first-child { text-align: left; }
.plots { display: flex; flex-wrap: wrap; gap: 1.5em; } figure { margin: 0; flex: 1 1 26em; max-width: 40em; }
figcaption { font-size: .92em; color: #444; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; } svg .grid { stroke: #e4e4e4; }
""".strip()


def render_token(token: Token) -> str:
    classes = [_CLASS[token.state]] if token.state != KEPT else []
    if token.state != KEPT and not token.predicted:
        classes.append("unpredicted")
    if token.special:
        classes.append("special")
    if token.begins_unit:
        classes.append("unit")
    space, text = token.split_space()
    body = escape(text) + (f"<sub>{escape(token.became.strip())}</sub>" if token.state == RANDOM else "")
    return f'{space}<span class="{" ".join(classes)}">{body}</span>' if classes else space + body


def render_rows(rows: Iterable[Sequence[Sequence[Token]]]) -> str:
    """Rows of copies of tokens."""
    return "\n".join(
        f'<p class="row{" copy" if copy else ""}">{"".join(map(render_token, join_units(tokens)))}</p>'
        for copies in rows
        for copy, tokens in enumerate(copies)
    )


def render_table(totals: Totals, corruption: float, prediction: float) -> str:
    """Rates asked for and measured."""
    shares = totals.shares()
    lines = [
        ("corruption rate", corruption, 1 - shares["kept"], totals.corruption_rate),
        ("prediction rate", prediction, totals.predicted / max(1, totals.maskable), totals.prediction_rate),
    ]
    body = "".join(
        f"<tr><td>{name}</td><td>{asked:.4f}</td><td>{selected:.4f}</td><td>{logged:.4f}</td></tr>"
        for name, asked, selected, logged in lines
    )
    parts = ", ".join(f"{name} {100 * share:.2f}%" for name, share in shares.items())
    return (
        "<table><tr><th></th><th>asked for</th><th>selected</th><th>logged: without tokens left the same</th></tr>"
        f"{body}</table><p>{totals.rows} sequences with {totals.maskable} tokens in units, {totals.copies} "
        f"{'copy' if totals.copies == 1 else 'copies'} of each sequence. Of the tokens: {parts}.</p>"
    )


def plot_rate(totals: Totals, corruption: float) -> str:
    """Share of tokens selected at each position of the row, beside the rate asked for."""
    rates = totals.rate_at()
    known = [rate for rate in rates if rate is not None]
    top = min(1.0, 1.25 * max([*known, corruption]))
    plot = Plot("rate by position", "position in the sequence", "share selected", (0, max(len(rates) - 1, 1)), (0.0, top))
    plot.line("measured", list(enumerate(rates)), COLOURS[0])
    plot.line("asked for", [(0, corruption), (max(len(rates) - 1, 1), corruption)], COLOURS[1], dash=True)
    return plot.render()


def render_page(
    title: str,
    command: str,
    rows: Iterable[Sequence[Sequence[Token]]],
    totals: Totals,
    rates: Tuple[float, float],
    runs: Dict[str, Sequence[float]],
    left_out: Dict[str, str],
    sections: str = "",
) -> str:
    """Render the page.

    Args:
        rows: input of :func:`render_rows`.
        rates: corruption and prediction rate asked for.
        runs: for each masker the fractions of runs of corrupted tokens by length, the last one "or longer".
        left_out: maskers without a line in that plot, and why.
        sections: HTML to append.
    """
    units = [float(count) / max(1, int(totals.units.sum())) for count in totals.units]
    plots: List[Tuple[str, str]] = [
        (
            plot_histograms("run lengths by masker", "neighbouring corrupted tokens", "share of the runs", runs),
            "Lengths of runs of corrupted tokens, by masker, at the same corruption rate (one copy of each row). Units "
            "that touch make one run. The last length stands for it and all longer ones."
            + "".join(f" No line for {escape(name)}: {escape(why)}." for name, why in left_out.items()),
        ),
        (
            plot_bars("unit lengths", "tokens in a unit", "share of the units", units),
            "Lengths of all units, masked or not, with the masker asked for.",
        ),
        (
            plot_rate(totals, rates[0]),
            "How often a position of the row is selected. Few rows reach the last positions: the line is noisy there.",
        ),
    ]
    figures = "".join(f"<figure>{svg}<figcaption>{caption}</figcaption></figure>" for svg, caption in plots)
    legend = " ".join(
        render_token(token)
        for token in (
            Token("masked", MASKED, True),
            Token("random", RANDOM, True, "new"),
            Token("same", SAME, True),
            Token("masked, not predicted", MASKED, False),
        )
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{_STYLE}
</style>
</head>
<body>
<h1>{escape(title)}</h1>
<p><code>{escape(command)}</code></p>
<h2>Rates</h2>
{render_table(totals, *rates)}
<h2>Plots</h2>
<div class="plots">{figures}</div>
<h2>Rows</h2>
<p>{legend} &nbsp; A thin line stands where a unit begins; small type is what a random token became; a copy of a row is
set in from its left.</p>
{render_rows(rows)}
{sections}
</body>
</html>
"""
