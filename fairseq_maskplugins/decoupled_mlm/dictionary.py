"""Describe a fairseq dictionary and ``--bpe`` as a :class:`Vocabulary`."""

from functools import cached_property, partial
from typing import Any, Callable, Dict, List

import numpy as np
from fairseq.data import Dictionary, encoders
from omegaconf import OmegaConf

from ..errors import UsageError, one_line
from ..pieces import read_piece
from ..vocabulary import Vocabulary, is_padding_word

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def build_vocabulary(dictionary: Dictionary, by_frequency: bool, bpe: Any) -> Vocabulary:
    """Describe a dictionary (with ``<mask>`` added) and the configuration of ``--bpe``, or None.

    ``by_frequency``: random replacements follow the dictionary's counts (``--freq-weighted-replacement``).
    """
    special = np.zeros(len(dictionary), dtype=bool)
    special[: dictionary.nspecial] = True
    # a dictionary file may list a special again, marked to overwrite the first
    special[[i for i, symbol in enumerate(dictionary.symbols) if symbol in SPECIALS]] = True
    padding = np.array([is_padding_word(symbol) for symbol in dictionary.symbols])
    replacements = np.flatnonzero(~special & ~padding)
    if len(replacements) == 0:
        raise UsageError("dict.txt: holds no words, only specials")
    cumulative = None
    if by_frequency:
        counts = np.asarray(dictionary.count, dtype=np.float64)[replacements]
        if counts.sum() <= 0:
            raise UsageError("--freq-weighted-replacement needs counts in dict.txt, all of them are 0")
        cumulative = np.cumsum(counts) / counts.sum()
    pieces = None if bpe is None else _Pieces(dictionary.symbols, bpe, special | padding)
    return Vocabulary(
        pad=dictionary.pad(),
        bos=dictionary.bos(),
        eos=dictionary.eos(),
        mask=dictionary.index("<mask>"),
        maskable=~special,
        replacements=replacements,
        cumulative=cumulative,
        find_word_begins=None if pieces is None else pieces.find_word_begins,
        find_pieces=partial(_read_symbols, dictionary.symbols, special) if pieces is None else pieces.find_pieces,
    )


def _read_symbols(symbols: List[str], special: np.ndarray) -> List[bytes]:
    """Return the entries as their texts, for data without a tokenizer."""
    return [b"" if special[i] else symbol.encode("utf-8") for i, symbol in enumerate(symbols)]


class _Pieces:
    """The dictionary's entries as the tokenizer of ``--bpe`` sees them."""

    def __init__(self, symbols: List[str], bpe: Any, outside: np.ndarray):
        self.symbols, self.bpe, self.outside, self.name = symbols, bpe, outside, name_of(bpe)

    def __getstate__(self) -> Dict[str, Any]:
        # spawned data workers don't use the tokenizer; not every tokenizer can be pickled, nor fairseq's configuration
        return {"symbols": self.symbols, "bpe": self.name, "outside": self.outside, "name": self.name}

    @cached_property
    def encoder(self) -> Any:
        return load_tokenizer(self.bpe)

    def _map(self, question: Callable[[str], Any], special: Any) -> List[Any]:
        """Apply a function to all entries; ``special`` for those that are no pieces."""
        answers = []
        for symbol, outside in zip(self.symbols, self.outside):
            try:
                answers.append(special if outside else question(symbol))
            except (ValueError, KeyError, TypeError) as error:
                raise UsageError(f"--bpe {self.name} does not know {symbol!r} of dict.txt: is it the data's? ({error})")
        return answers

    def find_word_begins(self) -> np.ndarray:
        if not hasattr(self.encoder, "is_beginning_of_word"):
            raise UsageError(f"--bpe {self.name} does not say where words begin, so whole words can't be masked")
        return np.array(self._map(self.encoder.is_beginning_of_word, True))

    def find_pieces(self) -> List[bytes]:
        encoder = self.encoder
        return self._map(lambda symbol: read_piece(self.name, encoder, symbol), b"")


def name_of(bpe: Any) -> str:
    """Return the tokenizer's name in a configuration of ``--bpe``."""
    return bpe if isinstance(bpe, str) else bpe.get("_name")


def load_tokenizer(bpe: Any) -> Any:
    """Build fairseq's tokenizer for a configuration of ``--bpe``; a missing or damaged file is a UsageError."""
    for name in bpe if OmegaConf.is_config(bpe) else ():
        if OmegaConf.is_missing(bpe, name):
            raise UsageError(f"--bpe {name_of(bpe)} needs --{name.replace('_', '-')}")
    try:
        return encoders.build_bpe(bpe)
    except Exception as error:
        raise UsageError(
            f"--bpe {name_of(bpe)}: can't load the tokenizer: {type(error).__name__}: {one_line(error, 300)}"
        ) from None
