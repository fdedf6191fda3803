"""The masker interface and its registry (no fairseq here)."""

from dataclasses import dataclass, fields
from typing import Any, Callable, Dict, List, NamedTuple, Type

import numpy as np

from ..errors import UsageError
from ..rng import SequenceDraws
from ..vocabulary import Vocabulary


@dataclass
class MaskerConfig:
    """Base of a masker's options. Every field becomes an option of ``--task decoupled_mlm``, with the field's
    ``metadata["help"]`` as its help; a name that another masker has already taken is refused."""


class Masker:
    """Cut sequences into units: runs of neighbouring tokens that are corrupted together or not at all.

    Ranking the units, cutting the ranking at the rates and replacing tokens is the same for all (``decoupled_mlm/plan.py``).

    Args:
        config: an instance of the dataclass that the masker was registered with.
        vocabulary: arrays over the dictionary's entries.

    Attributes:
        default_budget: ``"exact"`` (the unit at the cut is truncated) or ``"whole"`` (no unit is ever split).
        can_merge: whether ``--mask-multiple-length`` may merge this masker's units into longer ones.
    """

    default_budget = "exact"
    can_merge = False

    def __init__(self, config: MaskerConfig, vocabulary: Vocabulary):
        self.config, self.vocabulary = config, vocabulary

    def begin_units(self, tokens: np.ndarray, maskable: np.ndarray, draws: SequenceDraws) -> np.ndarray:
        """Say where units begin.

        Args:
            tokens: ids, padded on the right. *Shape:* ``[B, T]``.
            maskable: bool ``[B, T]``; False for specials and padding.
            draws: keyed draws of these rows, for maskers that need any (use a stream name of your own).

        Returns:
            bool ``[B, T]``. A unit runs from a True up to the next True or the next token that is not maskable; what is
            returned at tokens that are not maskable does not matter, and a maskable token after one that is not always
            begins a unit.
        """
        raise NotImplementedError


class Registered(NamedTuple):
    masker: Type[Masker]
    config: Type[MaskerConfig]


MASKERS: Dict[str, Registered] = {}
_listeners: List[Callable[[], None]] = []


def on_register(listener: Callable[[], None]) -> None:
    """Call ``listener`` now and after every later registration (the task adds the maskers' options to its own)."""
    _listeners.append(listener)
    listener()


def register_masker(name: str, config: Type[MaskerConfig] = MaskerConfig) -> Callable[[Type[Masker]], Type[Masker]]:
    """Class decorator: make a masker known as ``--masker NAME``.

    Raises:
        ValueError: the name is taken, the class is no :class:`Masker`, or an option of ``config`` exists already.
    """

    def register(cls: Type[Masker]) -> Type[Masker]:
        if name in MASKERS:
            raise ValueError(f"masker {name!r} is already registered, by {MASKERS[name].masker.__qualname__}")
        if not (isinstance(cls, type) and issubclass(cls, Masker)):
            raise ValueError(f"masker {name!r}: {cls!r} must extend Masker")
        if not issubclass(config, MaskerConfig):
            raise ValueError(f"masker {name!r}: its config {config!r} must extend MaskerConfig")
        taken = {f.name: other for other, entry in MASKERS.items() for f in fields(entry.config)}
        for f in fields(config):
            if f.name in taken:
                raise ValueError(f"masker {name!r}: option {f.name!r} is taken by masker {taken[f.name]!r}")
        MASKERS[name] = Registered(cls, config)
        try:
            for listener in _listeners:
                listener()
        except Exception:
            del MASKERS[name]
            raise
        return cls

    return register


def build_masker(name: str, options: object, vocabulary: Vocabulary) -> Masker:
    """Build a masker by name, its config read from attributes of ``options`` (a task's config)."""
    if name not in MASKERS:
        raise UsageError(f"--masker must be one of {', '.join(sorted(MASKERS))}, got {name!r}")
    entry = MASKERS[name]
    config = entry.config(**{f.name: getattr(options, f.name) for f in fields(entry.config)})
    return entry.masker(config, vocabulary)


def make_masker(name: str, vocabulary: Vocabulary, **options: Any) -> Masker:
    """Build a masker by name without a task: ``make_masker("span", vocabulary, span_max_length=5)``.

    ``options`` are fields of the masker's config. For ``vocabulary`` see
    :meth:`~fairseq_maskplugins.vocabulary.Vocabulary.from_transformers`.
    """
    if name not in MASKERS:
        raise UsageError(f"masker must be one of {', '.join(sorted(MASKERS))}, got {name!r}")
    entry = MASKERS[name]
    known = {f.name for f in fields(entry.config)}
    for option in options:
        if option not in known:
            raise UsageError(f"masker {name} has the options {', '.join(sorted(known)) or '(none)'}, got {option!r}")
    return entry.masker(entry.config(**options), vocabulary)


def require_words(vocabulary: Vocabulary, option: str) -> np.ndarray:
    """Which entries of the dictionary begin a word, bool ``[V]``; ``option`` is named where nothing says so."""
    if vocabulary.find_word_begins is None:
        raise UsageError(
            f"{option} needs to know where words begin: give the --bpe that the data was encoded with (sentencepiece, "
            "gpt2, ...) and its model file"
        )
    return vocabulary.find_word_begins()
