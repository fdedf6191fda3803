"""Counting what masks look like (numpy, no fairseq)."""

from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

import numpy as np

# what became of a token
KEPT, MASKED, RANDOM, SAME = range(4)


class Token(NamedTuple):
    """A token as it is shown.

    Attributes:
        text: as in the data; a leading space where a word begins.
        state: KEPT, MASKED, RANDOM or SAME.
        predicted: whether the loss is taken here.
        became: text of the random token, else "".
        begins_unit: whether a unit begins here.
        special: whether it is in no unit.
    """

    text: str
    state: int
    predicted: bool
    became: str = ""
    begins_unit: bool = False
    special: bool = False

    def split_space(self) -> Tuple[str, str]:
        """The space before it, and what is shown: a piece without text is the mark of a word's begin, if it is
        masked."""
        space, text = (" ", self.text[1:]) if self.text.startswith(" ") else ("", self.text)
        return space, text or ("" if self.state == KEPT else "\u2581")


def join_units(tokens: Iterable[Token]) -> List[Token]:
    """Join neighbouring tokens of one unit to which the same was done; kept tokens stay as they are."""
    joined: List[Token] = []
    for token in tokens:
        last = joined[-1] if joined else None
        if (
            last is not None
            and not token.begins_unit
            and token.state != KEPT
            and (last.state, last.predicted) == (token.state, token.predicted)
        ):
            joined[-1] = last._replace(text=last.text + token.text, became=last.became + token.became)
        else:
            joined.append(token)
    return joined


def classify(tokens: np.ndarray, source: np.ndarray, corrupted: np.ndarray, mask: int) -> np.ndarray:
    """State of each token, int8 ``[B, T]``; a corrupted token whose random replacement is itself counts as SAME."""
    states = np.full(tokens.shape, KEPT, dtype=np.int8)
    states[corrupted] = RANDOM
    states[corrupted & (source == tokens)] = SAME
    states[corrupted & (source == mask)] = MASKED
    return states


def run_lengths(chosen: np.ndarray) -> np.ndarray:
    """Lengths of the runs of neighbouring True, row by row. *Shape:* bool ``[B, T]`` to int64 ``[N]``."""
    padded = np.zeros((len(chosen), chosen.shape[1] + 2), dtype=np.int8)
    padded[:, 1:-1] = chosen
    step = np.diff(padded, axis=1).ravel()
    return np.flatnonzero(step == -1) - np.flatnonzero(step == 1)


def unit_lengths(starts: np.ndarray, maskable: np.ndarray) -> np.ndarray:
    """Lengths of the units. *Shape:* complete starts and maskable, bool ``[B, T]``, to int64 ``[N]``."""
    edges = np.flatnonzero((starts | ~maskable).ravel())
    return np.diff(edges, append=starts.size)[starts.ravel()[edges]]


def histogram(lengths: np.ndarray, longest: Optional[int] = None) -> np.ndarray:
    """Counts of the lengths 1, 2, ...; the last of ``longest`` entries counts all that are as long or longer."""
    if longest is not None:
        lengths = np.minimum(lengths, longest)
    return np.bincount(lengths, minlength=2 if longest is None else longest + 1)[1:]


@dataclass
class Totals:
    """Sums over batches.

    Attributes:
        rows, copies, maskable: rows read, copies of each, and tokens that are in units (each row once).
        states: number of tokens (over all copies) by state.
        predicted: number of tokens predicted; changed_predicted: of them, those that the model does not see as they
        are. units: numbers of units by length, from 1.
        selected_at, maskable_at: by position in the row, tokens corrupted (over all copies) and tokens in units.
    """

    rows: int = 0
    copies: int = 1
    maskable: int = 0
    states: np.ndarray = field(default_factory=lambda: np.zeros(4, dtype=np.int64))
    predicted: int = 0
    changed_predicted: int = 0
    units: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    selected_at: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    maskable_at: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def add(self, states: np.ndarray, predicted: np.ndarray, maskable: np.ndarray, starts: np.ndarray, copies: int) -> None:
        """Count a batch of states and predictions ``[K B, T]``, with its maskable tokens and unit starts ``[B, T]``."""
        self.rows += len(maskable)
        self.copies = copies
        self.maskable += int(maskable.sum())
        self.states += np.bincount(states[np.repeat(maskable, copies, axis=0)], minlength=4)
        self.predicted += int(predicted.sum())
        self.changed_predicted += int((predicted & (states != SAME)).sum())
        self.units = _add(self.units, histogram(unit_lengths(starts, maskable)))
        self.selected_at = _add(self.selected_at, (states != KEPT).sum(axis=0))
        self.maskable_at = _add(self.maskable_at, maskable.sum(axis=0) * copies)

    @property
    def corruption_rate(self) -> float:
        """As the criterion logs it: tokens left the same do not count."""
        return float(self.states[MASKED] + self.states[RANDOM]) / max(1, self.maskable * self.copies)

    @property
    def prediction_rate(self) -> float:
        return self.changed_predicted / max(1, self.maskable)

    def shares(self) -> Dict[str, float]:
        """Shares of the tokens in units, over all copies, by state."""
        names = ("kept", "masked", "random", "same")
        return {name: float(n) / max(1, self.maskable * self.copies) for name, n in zip(names, self.states)}

    def rate_at(self) -> List[Optional[float]]:
        """Share selected by position in the row; None where no row has a token in a unit."""
        return [float(s) / int(m) if m else None for s, m in zip(self.selected_at, self.maskable_at)]


def describe_totals(totals: Totals, corruption: float, prediction: float) -> Dict[str, Any]:
    """What was measured as plain values: rates as asked for, as selected, and as the criterion logs them."""
    shares, units = totals.shares(), int(totals.units.sum())
    lengths = np.arange(1, len(totals.units) + 1)
    return {
        "rows": totals.rows,
        "tokens": totals.maskable,
        "copies": totals.copies,
        "corruption_rate": {"asked": corruption, "selected": 1 - shares["kept"], "logged": totals.corruption_rate},
        "prediction_rate": {
            "asked": prediction,
            "selected": totals.predicted / max(1, totals.maskable),
            "logged": totals.prediction_rate,
        },
        "shares": shares,
        "units": {
            "count": units,
            "mean_length": float(totals.units @ lengths) / units if units else None,
            "by_length": totals.units.tolist(),
        },
        "selected_by_position": totals.rate_at(),
    }


def _add(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    total = np.zeros(max(len(one), len(other)), dtype=np.int64)
    total[: len(one)] += one
    total[: len(other)] += other
    return total
