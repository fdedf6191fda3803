"""What the edge tests share: every masker with every budget and replacement, the rates at both ends, awkward rows."""

import numpy as np
from helpers import BOS, EOS, NSPECIAL, PAD, UNK, make_planner, make_vocabulary

# as near to 0 and to 1 as anyone asks for, and what lies on the way there
RATES = (1e-12, 1e-4, 0.5, 1 - 1e-9, 1.0)
# with copies: the most that a row of 64 tokens may have, windows that are all but equal, and one that starts again at 0
DECOUPLED = ((1 / 64, 1.0), (1 / 64, 1e-12), (1.0, 1e-12), (1e-12, 1.0e-11), (0.5, 1 - 1e-9), (1 - 1e-9, 1.0), (0.3, 1.0))
PAIRS = tuple((rate, rate) for rate in RATES) + DECOUPLED

MASKERS = {
    "uniform": ("uniform", {}),
    "whole_word": ("whole_word", {}),
    "span": ("span", {"span_unit": "word"}),
    "span_token": ("span", {"span_unit": "token"}),
    "span_longest": ("span", {"span_unit": "token", "span_geometric_p": 0.0, "span_max_length": 4096}),
    "pmi": ("pmi", {}),
}
# shares of random tokens and of tokens left the same
REPLACEMENTS = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (1 / 3, 2 / 3), (1e-9, 1e-9), (1 - 1e-9, 0.0))


def spell(size):
    """Text of a dictionary's entries, as ``find_pieces`` gives it: ``w4``, ``w5``, ..."""
    return [b""] * NSPECIAL + [f"w{i}".encode() for i in range(NSPECIAL, size - 1)] + [b""]


def vocabulary_of(words, **overrides):
    """A dictionary of so many words; every second one begins a word."""
    size = NSPECIAL + words + 1
    return make_vocabulary(size, begins_every=2, find_pieces=lambda: spell(size), **overrides)


def write_phrases(path):
    """Phrases of two words, and the longest there may be, longer than most rows."""
    words = [f"w{a}" if a % 2 == 0 else f"w{a - 1}w{a}" for a in range(4, 60)]
    lines = [f"{a} {b}" for a, b in zip(words, words[1:])] + [" ".join(["w4"] * 32)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def planner_of(name, vocabulary, phrases, budget=None, replacement=(0.0, 0.0), **kwargs):
    masker, options = MASKERS[name]
    options = {**options, "pmi_vocab": phrases} if masker == "pmi" else options
    p_random, p_same = replacement
    return make_planner(masker, vocabulary, budget, options, random_token_prob=p_random, leave_unmasked_prob=p_same, **kwargs)


def rows_of(lengths, vocabulary, seed=0):
    """Rows ``<s> tokens </s>`` with so many maskable tokens, then one that is all ``<unk>``, and one that is ``<s>``
    alone."""
    rng = np.random.RandomState(seed)
    rows = [[BOS] + rng.choice(vocabulary.replacements, n).tolist() + [EOS] for n in lengths]
    rows += [[BOS] + [UNK] * 7 + [EOS], [BOS]]
    width = max(map(len, rows))
    return np.array([row + [PAD] * (width - len(row)) for row in rows], dtype=np.int64)
