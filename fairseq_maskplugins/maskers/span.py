"""``--masker span``: runs of words or tokens whose lengths follow a geometric law (SpanBERT, arXiv 1907.10529)."""

from dataclasses import dataclass, field

import numpy as np

from ..errors import UsageError
from ..rng import SequenceDraws
from ..vocabulary import Vocabulary
from .base import Masker, MaskerConfig, register_masker, require_words
from .runs import group_atoms, starts_after_gap

MAX_LENGTH = 4096


@dataclass
class SpanConfig(MaskerConfig):
    span_geometric_p: float = field(
        default=0.2,
        metadata={
            "help": "--masker span: parameter of the geometric law of span lengths, in [0, 1]; 0: all lengths up to "
            "--span-max-length are equally likely, 1: every span has length 1"
        },
    )
    span_max_length: int = field(
        default=10, metadata={"help": f"--masker span: the longest span, in units of --span-unit, 1 to {MAX_LENGTH}"}
    )
    span_unit: str = field(
        default="word", metadata={"help": "--masker span: what spans are counted in, word (needs --bpe) or token"}
    )


def span_length_distribution(p: float, longest: int) -> np.ndarray:
    """Probabilities ``[longest]`` of the lengths 1 to ``longest``: ``(1 - p)^(l - 1)``, truncated and renormalised.

    ``p`` in [0, 1]: 0 is uniform, 1 is length 1. At p = 0.2 and longest = 10 the mean is 3.80.
    """
    weights = (1.0 - p) ** np.arange(longest, dtype=np.float64)
    return weights / weights.sum()


def first_run_distribution(law: np.ndarray) -> np.ndarray:
    """Probabilities of the number of atoms that a row's first run still has in the row, ``P(L >= r) / E[L]``.

    Runs tile a line without end; the row is a window on it, at a place that does not depend on the runs. The run that the
    window's edge falls into is then longer than most (a long run covers more places), and the edge stands anywhere in it. With
    this law for the part inside the row, a run begins at every position with the same probability ``1 / E[L]``.
    """
    tail = np.cumsum(law[::-1])[::-1]
    return tail / tail.sum()


class _Sampler:
    """Turns uniform numbers in [0, 1) into lengths 1, 2, ... of a law, to within 2^-53 of its probabilities.

    A table says which lengths the numbers of each of its equal steps may become; where that is one, or one of two, a
    comparison settles it. That is several times faster than a search, and the same.
    """

    STEPS = 4096

    def __init__(self, law: np.ndarray):
        self.cumulative = np.cumsum(law)[:-1]
        edges = np.arange(self.STEPS + 1) / self.STEPS
        below = np.searchsorted(self.cumulative, edges, side="right")
        self.least = below[:-1] + 1
        self.bound = np.append(self.cumulative, 1.0)[below[:-1]]  # of u, at which the next length begins
        self.is_enough = bool((np.diff(below[:-1], append=below[-1]) <= 1).all())

    def __call__(self, u: np.ndarray) -> np.ndarray:
        if not self.is_enough:
            return np.searchsorted(self.cumulative, u, side="right") + 1
        step = (u * self.STEPS).astype(np.int64)
        return self.least[step] + (u >= self.bound[step])


@register_masker("span", config=SpanConfig)
class SpanMasker(Masker):
    """A unit is a span of neighbouring words (or tokens); spans tile the sequence.

    Their lengths are independent draws of :func:`span_length_distribution`; the part of the first span inside the sequence
    follows :func:`first_run_distribution`; the sequence's end and every special token cut a span short. The rate is exact,
    in one pass.

    SpanBERT draws a start and a length until 15% are masked: there spans may overlap (some are redrawn, short ones are
    favoured), starts are uniform over tokens and moved to the word's start (long words are favoured), and the number masked is
    rounded up. Here every word begins a span with the same probability.
    """

    default_budget = "exact"
    can_merge = False

    def __init__(self, config: SpanConfig, vocabulary: Vocabulary):
        super().__init__(config, vocabulary)
        p, longest, unit = config.span_geometric_p, config.span_max_length, config.span_unit
        if not 0.0 <= p <= 1.0:
            raise UsageError(f"--span-geometric-p must lie in [0, 1], got {p:g}")
        if not 1 <= longest <= MAX_LENGTH:
            raise UsageError(f"--span-max-length must lie in [1, {MAX_LENGTH}], got {longest}")
        if unit not in ("word", "token"):
            raise UsageError(f"--span-unit must be word or token, got {unit!r}")
        self.word_begins = None
        if unit == "word":
            self.word_begins = require_words(vocabulary, "--masker span with --span-unit word (the other is token)")
        law = span_length_distribution(p, longest)
        self.mean = float(law @ np.arange(1, longest + 1))
        self.draw_length, self.draw_first = _Sampler(law), _Sampler(first_run_distribution(law))

    def begin_units(self, tokens: np.ndarray, maskable: np.ndarray, draws: SequenceDraws) -> np.ndarray:
        atoms = starts_after_gap(maskable if self.word_begins is None else self.word_begins[tokens], maskable)
        needed = np.count_nonzero(atoms, axis=1)
        return group_atoms(atoms, maskable, self._draw_ends(needed, tokens.shape[1], draws))

    def _draw_ends(self, needed: np.ndarray, width: int, draws: SequenceDraws) -> np.ndarray:
        """Number of words (or tokens) in the first ``j + 1`` spans, int64 ``[B, R]``, for enough spans to cover each
        sequence's ``needed [B]``. Span ``j`` has the same draw whatever ``R`` is."""
        most = int(needed.max()) if len(needed) else 0
        # enough for nearly every batch (4 standard deviations where lengths spread as far as their mean), else all
        runs = min(width, int(most / self.mean + 4.0 * (most / self.mean) ** 0.5) + 2)
        while True:
            u = draws.uniform("span-length", runs)
            lengths = self.draw_length(u)
            lengths[:, :1] = self.draw_first(u[:, :1])
            ends = np.cumsum(lengths, axis=1)
            if runs >= width or bool((ends[:, -1] >= needed).all()):
                return ends
            runs = width
