"""Draws ``docs/maskers.svg``: two sentences as every masker masks them, at 15% and 40%, and with decoupled rates.

    python docs/make_picture.py [OUT.svg]

The masks are those that training would draw for a row of these pieces with seed 1; nothing is arranged by hand but the
cutting into pieces. The same file comes out wherever this runs.
"""

import argparse
import os
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import List, Optional, Tuple

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from fairseq_maskplugins.decoupled_mlm.plan import Planner, select  # noqa: E402
from fairseq_maskplugins.decoupled_mlm.rates import Rates  # noqa: E402
from fairseq_maskplugins.files import write_file  # noqa: E402
from fairseq_maskplugins.maskers import (  # noqa: E402
    Masker,
    MaskerConfig,
    PMIConfig,
    PMIMasker,
    SpanConfig,
    SpanMasker,
    UniformMasker,
    WholeWordMasker,
)
from fairseq_maskplugins.rng import SequenceDraws  # noqa: E402
from fairseq_maskplugins.vocabulary import Vocabulary  # noqa: E402

SENTENCES = (
    "_New _York _City _is _the _most _popul ous _city _in _the _United _States .",
    "_Its _rail way _station s _were _design ed _by _an _architect _who _was _self - taught .",
)
PHRASES = "new york city\nunited states\nrailway stations\n"
SEED, ROW = 1, 6
LEFT, STEP, CHARACTER, TOP, GAP, WIDTH = 212, 25, 7.7, 32, 10, 776
STYLE = """
svg { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.card { fill: #ffffff; stroke: #d0d7de; } text { fill: #1f2328; } .faint { fill: #59636e; }
.name, .rate, .faint, .head { font-family: system-ui, "Segoe UI", Helvetica, Arial, sans-serif; } .name { font-weight: 600; }
.predicted { fill: #0969da; } .hidden { fill: none; stroke: #0969da; stroke-dasharray: 3 2; }
.predicted-word { fill: #ffffff; } .hidden-word { fill: #0969da; }
.unit { stroke: #9aa4af; stroke-width: 2; } .rule { stroke: #d0d7de; }
@media (prefers-color-scheme: dark) {
.card { fill: #0d1117; stroke: #30363d; } text { fill: #e6edf3; } .faint { fill: #9198a1; }
.predicted { fill: #1f6feb; } .hidden { stroke: #6cb0ff; } .predicted-word { fill: #ffffff; } .hidden-word { fill: #6cb0ff; }
.unit { stroke: #5b6570; } .rule { stroke: #30363d; } }
""".strip()


def read_pieces() -> Tuple[np.ndarray, List[str], Vocabulary]:
    """The row ``[1, T]``, the texts of the dictionary's entries, and the vocabulary. Every piece has an id of its own."""
    texts, row = ["<s>", "<pad>", "</s>", "<unk>"], [0]
    for sentence in SENTENCES:
        for piece in sentence.split():
            row.append(len(texts))
            texts.append(piece)
        row.append(2)
    texts.append("<mask>")
    size = len(texts)
    maskable = (np.arange(size) > 3) & (np.arange(size) < size - 1)
    begins = np.array([not maskable[i] or text.startswith("_") for i, text in enumerate(texts)])
    pieces = [text.lstrip("_").encode() if maskable[i] else b"" for i, text in enumerate(texts)]
    words = np.flatnonzero(maskable)
    vocabulary = Vocabulary(1, 0, 2, size - 1, maskable, words, None, lambda: begins, lambda: pieces)
    return np.array([row]), texts, vocabulary


class Drawing:
    """Marks, one line of text below the other. *Shape:* tokens and maskable are ``[1, T]``."""

    def __init__(self, tokens: np.ndarray, texts: List[str], maskable: np.ndarray):
        self.tokens, self.texts, self.maskable = tokens[0], texts, maskable[0]
        self.y, self.marks = TOP, []

    def add(self, masker: Masker, rates: Rates, name: str, note: str, budget: Optional[str] = None) -> None:
        """A row at these rates: a line for each sentence of each copy."""
        planner, draws = Planner(masker, budget), SequenceDraws(SEED, 1, np.array([ROW]))
        starts = planner.find_units(self.tokens[None], draws)[0][0]
        plan = planner.draw(self.tokens[None], draws)
        corrupted, predicted = select(torch.from_numpy(plan.depth), torch.from_numpy(plan.count), rates)
        if self.marks:
            self.marks.append(f'<path class="rule" d="M16 {self.y - 20}H{WIDTH - 16}"/>')
        self.text(18, name, "name")
        self.text(18, note, "faint", dy=19)
        for copy in range(rates.copies):
            if copy:
                self.text(18, f"copy {copy + 1} of the same row", "faint")
            self.draw_line(corrupted[0, copy].numpy(), predicted[0, copy].numpy(), starts)
        self.y += GAP

    def text(self, x: float, text: str, kind: str, dy: float = 0) -> None:
        self.marks.append(f'<text class="{kind}" x="{x:g}" y="{self.y + dy:g}">{escape(text)}</text>')

    def draw_line(self, corrupted: np.ndarray, predicted: np.ndarray, starts: np.ndarray) -> None:
        x, unit, box = float(LEFT), None, None  # where a unit, and a box around its hidden tokens, begins
        words: List[str] = []
        for t in range(1, len(self.tokens)):
            inside = self.maskable[t] and not starts[t]
            look = ("predicted" if predicted[t] else "hidden") if corrupted[t] else None
            if box is not None and not (inside and look == box[1]):
                self.marks.append(
                    f'<rect class="{box[1]}" x="{box[0]:.1f}" y="{self.y - 14}" width="{x - box[0]:.1f}" height="18" rx="3"/>'
                )
                box = None
            if unit is not None and not inside:
                self.marks.append(f'<path class="unit" d="M{unit + 1:.1f} {self.y + 8}H{x - 1:.1f}"/>')
                unit = None
            if not self.maskable[t]:  # the end of a sentence
                self.marks += words
                words, x, self.y = [], float(LEFT), self.y + STEP
                continue
            text = self.texts[self.tokens[t]]
            if text.startswith("_"):
                text, x = text[1:], x + (CHARACTER if self.maskable[t - 1] else 0)
            unit = x if unit is None else unit
            box = (x, look) if box is None and look else box
            width = CHARACTER * len(text)
            words.append(
                f'<text class="{look or "seen"}-word" x="{x:.1f}" y="{self.y}" textLength="{width:.1f}" '
                f'lengthAdjust="spacingAndGlyphs">{escape(text)}</text>'
            )
            x += width

    def render(self) -> str:
        y = self.y + 4
        self.marks.append(f'<path class="rule" d="M16 {self.y - 20}H{WIDTH - 16}"/>')
        legend = (
            f'<rect class="predicted" x="18" y="{y - 14}" width="46" height="18" rx="3"/>'
            f'<text class="predicted-word" x="22" y="{y}">token</text>'
            f'<text class="faint" x="72" y="{y}">hidden and predicted</text>'
            f'<rect class="hidden" x="{LEFT + 10}" y="{y - 14}" width="46" height="18" rx="3"/>'
            f'<text class="hidden-word" x="{LEFT + 14}" y="{y}">token</text>'
            f'<text class="faint" x="{LEFT + 64}" y="{y}">hidden, not predicted</text>'
            f'<path class="unit" d="M{LEFT + 230} {y - 4}h46"/>'
            f'<text class="faint" x="{LEFT + 284}" y="{y}">a unit: stands or falls together</text>'
        )
        height = y + 22
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            'role="img" aria-label="Two sentences as each masker masks them">\n'
            f'<style>{STYLE}</style>\n<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>\n'
            + "\n".join(self.marks)
            + f"\n{legend}\n</svg>\n"
        )


def draw() -> str:
    """The picture, as SVG."""
    tokens, texts, vocabulary = read_pieces()
    drawing = Drawing(tokens, texts, vocabulary.maskable[tokens])
    with tempfile.TemporaryDirectory() as folder:
        phrases = os.path.join(folder, "phrases.txt")
        Path(phrases).write_text(PHRASES, encoding="utf-8")
        maskers = [
            ("uniform", UniformMasker(MaskerConfig(), vocabulary)),
            ("whole_word", WholeWordMasker(MaskerConfig(), vocabulary)),
            ("span", SpanMasker(SpanConfig(), vocabulary)),
            ("pmi", PMIMasker(PMIConfig(pmi_vocab=phrases), vocabulary)),
        ]
        for name, masker in maskers:
            for rate in (0.15, 0.4):
                drawing.add(masker, Rates(rate, rate), f"--masker {name}", f"{rate:.0%} hidden and predicted")
        for corruption, prediction in ((0.4, 0.2), (0.2, 0.4)):
            note = f"{corruption:.0%} hidden, {prediction:.0%} predicted"
            drawing.add(maskers[1][1], Rates(corruption, prediction), "decoupled rates", note)
    return drawing.render()


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw docs/maskers.svg.")
    parser.add_argument("out", nargs="?", default=str(HERE / "maskers.svg"), metavar="OUT.svg")
    args = parser.parse_args()
    write_file(args.out, draw().encode("utf-8"))
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
