"""A vocabulary and rows for tests of masking that need no fairseq."""

import numpy as np
import torch

from fairseq_maskplugins.decoupled_mlm.plan import Planner, select
from fairseq_maskplugins.decoupled_mlm.rates import Rates
from fairseq_maskplugins.maskers import MASKERS, build_masker
from fairseq_maskplugins.rng import SequenceDraws
from fairseq_maskplugins.vocabulary import Vocabulary

BOS, PAD, EOS, UNK = 0, 1, 2, 3
NSPECIAL = 4


def make_vocabulary(size=100, begins_every=3, **overrides):
    """Ids 0-3 special, the last one ``<mask>``; of the others every ``begins_every``-th begins a word."""
    maskable = np.ones(size, dtype=bool)
    maskable[:NSPECIAL] = False
    maskable[-1] = False
    begins = np.arange(size) % begins_every == 0
    begins[:NSPECIAL] = True
    fields = dict(
        pad=PAD,
        bos=BOS,
        eos=EOS,
        mask=size - 1,
        maskable=maskable,
        replacements=np.arange(NSPECIAL, size - 1),
        find_word_begins=lambda: begins,
    )
    fields.update(overrides)
    return Vocabulary(**fields)


def make_rows(lengths, vocabulary, seed=0, eos_every=None):
    """Right-padded rows ``<s> tokens </s>``, with that many maskable tokens (and an ``</s>`` in between, every so many)."""
    rng = np.random.RandomState(seed)
    rows = []
    for length in lengths:
        words = rng.randint(NSPECIAL, len(vocabulary) - 1, size=length).tolist()
        if eos_every:
            words = [x for i, word in enumerate(words) for x in ([word] if (i + 1) % eos_every else [word, EOS])]
        rows.append([BOS] + words + [EOS])
    width = max(map(len, rows))
    return np.array([row + [PAD] * (width - len(row)) for row in rows], dtype=np.int64)


class Options:
    """Options of all registered maskers at their defaults, as a task's config would hold them."""

    def __init__(self, **overrides):
        from dataclasses import fields

        for entry in MASKERS.values():
            for f in fields(entry.config):
                setattr(self, f.name, f.default)
        self.__dict__.update(overrides)


def make_planner(masker, vocabulary, budget=None, options=None, **kwargs):
    return Planner(build_masker(masker, Options(**(options or {})), vocabulary), budget, **kwargs)


def draw_plan(planner, tokens, seed=1, epoch=1, ids=None):
    return planner.draw(tokens, SequenceDraws(seed, epoch, np.arange(len(tokens)) if ids is None else ids))


def cut(plan, corruption, prediction):
    """corrupted, predicted: bool ``[B, K, T]`` as numpy arrays."""
    found = select(torch.from_numpy(plan.depth), torch.from_numpy(plan.count), Rates(corruption, prediction))
    return [part.numpy() for part in found]
