"""A proposal as shading: how much more often than uniformly each word would be masked (no fairseq)."""

from html import escape
from typing import Iterable, List, NamedTuple, Sequence

import numpy as np

DARKEST = 3.0  # from here on, the shade stays the same


class Word(NamedTuple):
    """A word.

    Attributes:
        text: as in the data, with a leading space where one is.
        weight: mean over its tokens of ``n q``; 1 is as often as uniformly.
    """

    text: str
    weight: float


def join_words(texts: Sequence[str], q: np.ndarray, maskable: np.ndarray) -> List[Word]:
    """Join ``T`` tokens to words at their leading spaces, with the sum of the proposal ``q [T]`` over each."""
    words: List[List[int]] = []
    for t in np.flatnonzero(maskable):
        if words and words[-1][-1] == t - 1 and not texts[t].startswith(" "):
            words[-1].append(int(t))
        else:
            words.append([int(t)])
    relative = q * max(1, int(maskable.sum()))
    return [Word("".join(texts[t] for t in word), float(np.mean(relative[word]))) for word in words]


def render_shaded(words: Iterable[Word], uniform: bool = False) -> str:
    """A line of HTML; with ``uniform`` as uniform masks would weigh the same words."""
    parts = []
    for word in words:
        weight = 1.0 if uniform else word.weight
        space, text = (" ", word.text[1:]) if word.text.startswith(" ") else ("", word.text)
        shade = min(weight, DARKEST) / DARKEST
        parts.append(
            f'{space}<span style="background: rgba(209, 73, 91, {0.75 * shade:.2f})" title="{weight:.2f} times as often as '
            f'uniformly">{escape(text) or "&#9601;"}</span>'
        )
    return "".join(parts).strip()


def render_section(rows: Sequence[Sequence[Word]], checkpoint: str) -> str:
    """The page's section: each row twice, by the proposal and uniformly."""
    lines = "\n".join(
        f'<p class="row">{render_shaded(words)}</p><p class="row copy">{render_shaded(words, uniform=True)}</p>' for words in rows
    )
    return (
        f"<h2>What MAP-Net would mask</h2><p>The proposal of <code>{escape(checkpoint)}</code>: the darker, the oftener a "
        f"word is masked; from {DARKEST:g} times uniform on, the shade stays the same. Set in from the left: the same row "
        f"with uniform masks.</p>\n{lines}"
    )


def render_weights(words: Iterable[Word]) -> str:
    """A line for the terminal: each word with its weight."""
    return " ".join(f"{word.text.strip() or chr(9601)}:{word.weight:.1f}" for word in words)
