"""Rows and figures as text (no fairseq here)."""

from typing import Iterable, List, Sequence

import numpy as np

from .measure import KEPT, MASKED, RANDOM, SAME, Token, Totals, describe_totals, join_units

_COLOURS = {MASKED: "1;37;41", RANDOM: "1;30;43", SAME: "1;30;46"}
_BRACKETS = {MASKED: "[]", RANDOM: "{}", SAME: "()"}
_UNPREDICTED = "-"


def paint(text: str, code: str) -> str:
    return f"\033[{code}m{text}\033[0m"


def render_piece(token: Token, colour: bool) -> str:
    """A token, or several of one unit joined; without colour ``[masked]``, ``{random>new}``, ``(same)``, and ``-``
    after one that is not predicted."""
    space, text = token.split_space()
    if token.state == KEPT:
        return space + (paint(text, "2") if colour and token.special else text)
    if token.state == RANDOM:
        text = f"{text}>{token.became.strip()}"
    if colour:
        return space + paint(text, _COLOURS[token.state] + ("" if token.predicted else ";9"))
    left, right = _BRACKETS[token.state]
    return f"{space}{left}{text}{right}" + ("" if token.predicted else _UNPREDICTED)


def render_row(tokens: Iterable[Token], colour: bool) -> str:
    return "".join(render_piece(token, colour) for token in join_units(tokens)).strip()


def render_legend(colour: bool) -> str:
    samples = [
        Token("masked", MASKED, True),
        Token("random", RANDOM, True, "new"),
        Token("same", SAME, True),
        Token("masked, not predicted", MASKED, False),
    ]
    return "  ".join(render_piece(token, colour) for token in samples)


def render_histogram(counts: Sequence[int], width: int = 40) -> List[str]:
    """Lines of ``length  share  bar`` for lengths 1, 2, ..."""
    total, most = max(1, int(np.sum(counts))), max(1, int(np.max(counts, initial=0)))
    return [
        f"{length:5d} {100 * count / total:6.2f}%  {'#' * round(width * int(count) / most)}".rstrip()
        for length, count in enumerate(counts, 1)
        if count
    ]


def render_totals(totals: Totals, corruption: float, prediction: float) -> List[str]:
    """Measured rates beside those asked for, and the histogram of unit lengths."""
    found = describe_totals(totals, corruption, prediction)
    lines = [
        f"{totals.rows} sequences, {totals.maskable} tokens in units, {totals.copies} "
        f"{'copy' if totals.copies == 1 else 'copies'} of each row",
        *(
            f"{name} rate  asked {rate['asked']:.4f}  selected {rate['selected']:.4f}  logged (without same) {rate['logged']:.4f}"
            for name, rate in (("corruption", found["corruption_rate"]), ("prediction", found["prediction_rate"]))
        ),
        "of the tokens    " + "  ".join(f"{name} {100 * share:.2f}%" for name, share in found["shares"].items()),
        f"unit lengths     {found['units']['count']} units, mean {found['units']['mean_length'] or 0:.2f} tokens",
    ]
    return lines + render_histogram(totals.units)
