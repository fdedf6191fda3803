"""Small plots as inline SVG, drawn without a plotting library (no fairseq here)."""

from html import escape
from math import ceil, floor, log10
from typing import Dict, List, Optional, Sequence, Tuple

COLOURS = ("#1f6fb4", "#d1495b", "#2e8b57", "#8a5fbf", "#b8860b", "#444444")
WIDTH, HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 14, 44

Points = Sequence[Tuple[float, Optional[float]]]


def nice_ticks(low: float, high: float, about: int = 5) -> List[float]:
    """Round numbers from ``low`` to ``high``, about that many."""
    span = max(high - low, 1e-12)
    step = 10.0 ** floor(log10(span / about))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= about)
    return [round(i * step, 12) for i in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


class Plot:
    """A frame with axes; the y axis begins at 0 unless told otherwise."""

    def __init__(
        self, title: str, x_label: str, y_label: str, x: Tuple[float, float], y: Tuple[float, float], percent: bool = True
    ):
        self.title, self.x_label, self.y_label, self.percent = title, x_label, y_label, percent
        self.x, self.y = (x[0], max(x[1], x[0] + 1e-9)), (y[0], max(y[1], y[0] + 1e-9))
        self.marks: List[str] = []
        self.legend: List[Tuple[str, str]] = []

    def at(self, x: float, y: float) -> Tuple[float, float]:
        px = _LEFT + (x - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - _LEFT - _RIGHT)
        py = HEIGHT - _BOTTOM - (y - self.y[0]) / (self.y[1] - self.y[0]) * (HEIGHT - _TOP - _BOTTOM)
        return round(px, 1), round(py, 1)

    def line(self, name: str, points: Points, colour: str, dots: bool = False, dash: bool = False) -> None:
        """A line through points; None leaves a gap."""
        path, pen = [], "M"
        for x, y in points:
            if y is None:
                pen = "M"
                continue
            px, py = self.at(x, y)
            path.append(f"{pen}{px} {py}")
            pen = "L"
            if dots:
                self.marks.append(f'<circle cx="{px}" cy="{py}" r="3" fill="{colour}"/>')
        style = ' stroke-dasharray="6 4"' if dash else ""
        self.marks.append(f'<path d="{" ".join(path)}" fill="none" stroke="{colour}" stroke-width="1.6"{style}/>')
        self.legend.append((name, colour))

    def bars(self, points: Points, colour: str) -> None:
        base = self.at(0, self.y[0])[1]
        for x, y in points:
            left, top = self.at(x - 0.4, y or 0.0)
            right = self.at(x + 0.4, 0)[0]
            self.marks.append(
                f'<rect x="{left}" y="{top}" width="{right - left:.1f}" height="{base - top:.1f}" fill="{colour}"/>'
            )

    def render(self) -> str:
        """The plot as an ``<svg>`` element."""
        out = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self.title)}">']
        for tick in nice_ticks(*self.y):
            py = self.at(self.x[0], tick)[1]
            text = f"{100 * tick:g}%" if self.percent else f"{tick:g}"
            out.append(f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{py}" y2="{py}" class="grid"/>')
            out.append(f'<text x="{_LEFT - 6}" y="{py + 4}" text-anchor="end">{text}</text>')
        for tick in nice_ticks(*self.x, about=12):
            px = self.at(tick, self.y[0])[0]
            out.append(f'<text x="{px}" y="{HEIGHT - _BOTTOM + 17}" text-anchor="middle">{tick:g}</text>')
        middle = (_LEFT + WIDTH - _RIGHT) / 2
        out.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(self.x_label)}</text>')
        height = HEIGHT / 2 - _BOTTOM / 2
        out.append(f'<text transform="translate(14 {height}) rotate(-90)" text-anchor="middle">{escape(self.y_label)}</text>')
        out += self.marks
        for number, (name, colour) in enumerate(self.legend):
            y = _TOP + 12 + 18 * number
            out.append(f'<rect x="{WIDTH - _RIGHT - 150}" y="{y - 9}" width="12" height="10" fill="{colour}"/>')
            out.append(f'<text x="{WIDTH - _RIGHT - 132}" y="{y}">{escape(name)}</text>')
        return "".join(out) + "</svg>"


def plot_histograms(title: str, x_label: str, y_label: str, shares: Dict[str, Sequence[float]]) -> str:
    """One line with dots for each name; ``shares[name][i]`` belongs to length ``i + 1``."""
    longest = max([len(values) for values in shares.values()] + [1])
    top = max([max(values, default=0.0) for values in shares.values()] + [0.01])
    plot = Plot(title, x_label, y_label, (0.5, longest + 0.5), (0.0, top * 1.08))
    for (name, values), colour in zip(shares.items(), COLOURS * (1 + len(shares) // len(COLOURS))):
        plot.line(name, list(enumerate(values, 1)), colour, dots=True)
    return plot.render()


def plot_bars(title: str, x_label: str, y_label: str, values: Sequence[float]) -> str:
    """Bars at 1, 2, ..."""
    plot = Plot(title, x_label, y_label, (0.4, max(len(values), 1) + 0.6), (0.0, max([*values, 0.01]) * 1.08))
    plot.bars(list(enumerate(values, 1)), COLOURS[0])
    return plot.render()
