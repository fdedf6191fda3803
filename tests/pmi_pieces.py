"""A vocabulary of pieces that are written out, and the units that the PMI masker finds in them."""

import numpy as np
from helpers import BOS, EOS, NSPECIAL, PAD, make_planner, make_vocabulary
from reference.plan_reference import units_of

from fairseq_maskplugins.rng import SequenceDraws


class Pieces:
    """A vocabulary of pieces as sentencepiece writes them, and rows of their ids."""

    def __init__(self, *symbols):
        self.symbols = list(dict.fromkeys(symbols))
        pieces = [b""] * NSPECIAL + [s.lstrip("▁").encode() for s in self.symbols] + [b""]
        begins = np.array([True] * NSPECIAL + [s.startswith("▁") for s in self.symbols] + [True])
        self.pieces, self.begins = pieces, begins
        self.vocabulary = make_vocabulary(len(pieces), find_word_begins=lambda: begins, find_pieces=lambda: pieces)

    def row(self, text):
        """``"▁New ▁York </s> ▁a"`` to ids, with ``<s>`` before."""
        return [BOS] + [EOS if s == "</s>" else NSPECIAL + self.symbols.index(s) for s in text.split()]

    def rows(self, *texts):
        rows = [self.row(text) + [EOS] for text in texts]
        width = max(map(len, rows))
        return np.array([row + [PAD] * (width - len(row)) for row in rows])


def make(tmp_path, pieces, phrases, **options):
    path = tmp_path / "list.txt"
    path.write_text("".join(f"{phrase}\n" for phrase in phrases), encoding="utf-8")
    return make_planner("pmi", pieces.vocabulary, options={"pmi_vocab": str(path), **options})


def units(planner, pieces, text, seed=1):
    """Units of a text as joined pieces: ``["▁New▁York", "▁is"]``."""
    tokens = pieces.rows(text)
    starts, maskable = planner.find_units(tokens, SequenceDraws(seed, 1, np.arange(1)))
    names = {NSPECIAL + i: s for i, s in enumerate(pieces.symbols)}
    return ["".join(names[tokens[0, p]] for p in unit) for unit in units_of(starts[0], maskable[0])]


CITY = (
    "▁we ▁like ▁New ▁York ▁Ci ty ▁( ) , . ▁ ▁h am bur ger s ▁don ' t ▁-- $ 5 ▁$ ▁million ▁state - of - the - art ▁YO RK"
).split()
