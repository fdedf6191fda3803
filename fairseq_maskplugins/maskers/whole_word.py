"""``--masker whole_word``: the tokens of one word are a unit."""

import numpy as np

from ..rng import SequenceDraws
from ..vocabulary import Vocabulary
from .base import Masker, MaskerConfig, register_masker, require_words


@register_masker("whole_word")
class WholeWordMasker(Masker):
    """A unit runs from a token that begins a word to the next such token. The first word of a line is a word of its own
    even where the tokenizer does not mark it (GPT-2 BPE): it follows a special, and a special ends every unit."""

    default_budget = "whole"
    can_merge = True

    def __init__(self, config: MaskerConfig, vocabulary: Vocabulary):
        super().__init__(config, vocabulary)
        self.word_begins = require_words(vocabulary, "--masker whole_word")

    def begin_units(self, tokens: np.ndarray, maskable: np.ndarray, draws: SequenceDraws) -> np.ndarray:
        return self.word_begins[tokens]
