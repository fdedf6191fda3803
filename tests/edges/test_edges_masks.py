"""Masks at the ends of every scale: rates near 0 and 1, rows of 0 to 4,096 tokens, 5 words and 250,000."""

import tracemalloc

import numpy as np
import pytest
import torch
from edge_cases import MASKERS, PAIRS, REPLACEMENTS, planner_of, rows_of, vocabulary_of, write_phrases
from fairseq.data import Dictionary
from helpers import cut, draw_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_maskplugins.decoupled_mlm.dictionary import build_vocabulary
from fairseq_maskplugins.decoupled_mlm.plan import BUDGETS
from fairseq_maskplugins.decoupled_mlm.rates import Rates
from fairseq_maskplugins.decoupled_mlm.sample import PLAN_KEY, mask_sample
from fairseq_maskplugins.rng import SequenceDraws

LENGTHS = (0, 1, 2, 3, 4096, 30, 1)
FIVE, MANY = vocabulary_of(5), vocabulary_of(90)


@pytest.fixture(scope="session")
def phrases(tmp_path_factory):
    return write_phrases(tmp_path_factory.mktemp("edges") / "phrases.txt")


def longest_unit(planner, tokens):
    starts, maskable = planner.find_units(tokens, SequenceDraws(1, 1, np.arange(len(tokens))))
    boundary = np.flatnonzero((starts | ~maskable).ravel())
    return int(np.diff(boundary, append=tokens.size).max())


@pytest.mark.parametrize("vocabulary", [FIVE, MANY], ids=["5 words", "90 words"])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", MASKERS)
def test_every_rate_on_rows_of_every_length(name, budget, vocabulary, phrases):
    tokens = rows_of(LENGTHS, vocabulary)
    planner = planner_of(name, vocabulary, phrases, budget)
    plan = draw_plan(planner, tokens)
    maskable = vocabulary.maskable[tokens]
    n = maskable.sum(1)
    assert plan.count.tolist() == n.tolist() and n.tolist() == [*LENGTHS, 0, 0]
    assert (plan.depth[maskable] > 0).all() and np.isinf(plan.depth[~maskable]).all()
    assert (plan.depth <= np.where(maskable, n[:, None], np.inf)).all()
    slack = 1 if budget == "exact" else longest_unit(planner, tokens)
    for corruption, prediction in PAIRS:
        corrupted, predicted = cut(plan, corruption, prediction)
        assert not corrupted[np.broadcast_to(~maskable[:, None], corrupted.shape)].any()
        assert not (predicted & ~corrupted).any() and predicted.sum(1).max() <= 1
        assert (np.abs(predicted.sum((1, 2)) - prediction * n) <= slack).all()
        for copy in range(corrupted.shape[1]):
            assert (np.abs(corrupted[:, copy].sum(1) - corruption * n) <= 2 * slack).all()
        if prediction == 1.0:
            assert np.array_equal(predicted.any(1), maskable)
        if prediction <= 1e-11:  # one in ten thousand millions of draws
            assert not predicted.any()


@pytest.mark.parametrize("rate", [1e-4, 1 - 1e-4])
@pytest.mark.parametrize("name", MASKERS)
def test_expected_counts_are_exact_at_both_ends(name, rate, phrases):
    """The mean over 500 rows of 1,000 tokens, within 4.5 standard errors; the budget is the masker's own."""
    tokens = rows_of([1000] * 500, MANY, seed=3)[:500]
    plan = draw_plan(planner_of(name, MANY, phrases), tokens)
    chosen = cut(plan, rate, rate)[0][:, 0].sum(1)
    assert abs(chosen.mean() - rate * 1000) <= 4.5 * chosen.std() / np.sqrt(len(chosen)) + 1e-9
    assert chosen.std() > 0


@pytest.mark.parametrize("replacement", REPLACEMENTS, ids=str)
@pytest.mark.parametrize("name", MASKERS)
def test_replacements(name, replacement, phrases):
    p_random, p_same = replacement
    for vocabulary in (FIVE, MANY):
        tokens = rows_of((0, 1, 2, 3, 400), vocabulary)
        plan = draw_plan(planner_of(name, vocabulary, phrases, replacement=replacement), tokens)
        sample = {
            "id": torch.arange(len(tokens)),
            "net_input": {"src_tokens": torch.from_numpy(tokens)},
            "nsentences": len(tokens),
            "ntokens": int((tokens != vocabulary.pad).sum()),
            PLAN_KEY: {k: None if v is None else torch.from_numpy(v) for k, v in plan._asdict().items()},
        }
        for rates in (Rates(1.0, 1.0), Rates(1e-12, 1e-12), Rates(0.25, 1.0)):
            masked = mask_sample(sample, rates, vocabulary.pad, vocabulary.mask)
            source, rows = masked["net_input"]["src_tokens"].numpy(), masked["tokens"].numpy()
            changed = source != rows
            assert vocabulary.maskable[rows[changed]].all()  # specials stay
            words = set(source[changed].tolist()) - {vocabulary.mask}
            assert words <= set(vocabulary.replacements.tolist())
            if p_random >= 1 - 1e-9:
                assert not (source == vocabulary.mask).any()
            if p_same == 1.0 or rates.corruption < 1e-4:
                assert not changed.any()
            if p_random + p_same < 1e-6:
                assert not words
            if rates.corruption == 1.0 and p_random + p_same == 0:
                assert (source[vocabulary.maskable[rows]] == vocabulary.mask).all()


def test_a_dictionary_of_one_word():
    """A random token can only be the token itself: neither corrupted nor predicted, by the paper's count."""
    vocabulary = vocabulary_of(1)
    tokens = rows_of((0, 1, 40), vocabulary)
    plan = draw_plan(planner_of("uniform", vocabulary, None, replacement=(1.0, 0.0)), tokens)
    assert np.array_equal(plan.replacement[vocabulary.maskable[tokens]], tokens[vocabulary.maskable[tokens]])


class LargestRank(SequenceDraws):
    """Every unit draws the largest rank there is, as one in 2^32 does."""

    def bits(self, stream, length):
        found = super().bits(stream, length)
        return found | np.uint64(0xFFFFFFFF00000000) if stream == "unit" else found

    def bits_at(self, stream, rows, positions):
        found = super().bits_at(stream, rows, positions)
        return found | np.uint64(0xFFFFFFFF00000000) if stream == "unit" else found


@pytest.mark.parametrize("name", MASKERS)
def test_the_largest_rank_is_still_before_what_is_not_masked(name, phrases):
    """At a rate of 1 every token is masked, also one that drew as large a rank as specials and padding are given."""
    tokens = rows_of((0, 1, 2, 3, 50), MANY)
    maskable = MANY.maskable[tokens]
    plan = planner_of(name, MANY, phrases).draw(tokens, LargestRank(1, 1, np.arange(len(tokens))))
    assert np.array_equal(cut(plan, 1.0, 1.0)[0][:, 0], maskable)


@pytest.mark.parametrize("name", ["uniform", "whole_word"])
@pytest.mark.parametrize("length", [1, 7, 100, 10**18, 10**30])
def test_runs_of_any_length(name, length, phrases):
    """``--mask-multiple-length``: a run longer than the row begins inside it as often as its length says, and a spread
    that is next to nothing changes nothing."""
    tokens = rows_of([32] * 3000, MANY)[:3000]
    found = []
    for stdev in (0.0, 1e-12, 1e-300):
        planner = planner_of(name, MANY, phrases, run_length=length, run_stdev=stdev)
        starts, maskable = planner.find_units(tokens, SequenceDraws(4, 1, np.arange(len(tokens))))
        if (length, stdev) == (1, 0.0):
            starts = starts & maskable
        found.append(starts)
    assert all(np.array_equal(found[0], other) for other in found[1:])
    if length >= 100 and name == "uniform":
        p = min(1.0, 31 / length)  # the row's first token begins a run in any case
        cuts = (found[0].sum(1) - 1).mean()
        assert abs(cuts - p) <= 4.5 * np.sqrt(p * (1 - p) / 3000)


def draw_peak(name, words, phrases):
    """Bytes that drawing and masking a batch takes at most, after a first one."""
    vocabulary = vocabulary_of(words)
    planner = planner_of(name, vocabulary, phrases, replacement=(0.1, 0.1))
    tokens = np.minimum(rows_of([100] * 20, MANY), len(vocabulary) - 2)
    draw_plan(planner, tokens)
    tracemalloc.start()
    try:
        draw_plan(planner, tokens, epoch=2)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", MASKERS)
def test_a_batch_costs_the_same_with_any_dictionary(name, phrases):
    """A table over the dictionary made anew for a batch would be 250 KB at least."""
    assert abs(draw_peak(name, 250_000, phrases) - draw_peak(name, 90, phrases)) < 50_000


def test_a_dictionary_of_250_000_words():
    dictionary = Dictionary()
    for word in range(250_000):
        dictionary.add_symbol(f"w{word}", n=1 if word < 249_999 else 0)
    dictionary.add_symbol("<mask>")
    for by_frequency, last in ((False, 249_999), (True, 249_998)):
        vocabulary = build_vocabulary(dictionary, by_frequency, None)
        assert len(vocabulary.replacements) == 250_000 and vocabulary.maskable.sum() == 250_000
        u = np.array([0.0, 0.5, 1 - 2.0**-53])
        assert vocabulary.draw_replacements(u).tolist() == [4, 4 + round(last / 2), 4 + last]
    assert vocabulary.find_pieces()[4] == b"w0"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 2, 3, 9, 40]), min_size=1, max_size=4),
    st.sampled_from(PAIRS),
    st.sampled_from(list(MASKERS)),
    st.sampled_from(BUDGETS),
    st.sampled_from(REPLACEMENTS),
    st.integers(0, 2**64 - 1),
)
def test_a_row_alone_is_masked_as_in_any_batch(phrases, lengths, pair, name, budget, replacement, seed):
    tokens = rows_of([*lengths, 500], MANY, seed=seed % 999)
    planner = planner_of(name, MANY, phrases, budget, replacement)
    plan = draw_plan(planner, tokens, seed=seed)
    together = cut(plan, *pair)
    for row in range(len(lengths)):
        width = lengths[row] + 2
        alone = draw_plan(planner, tokens[row : row + 1, :width], seed=seed, ids=np.array([row]))
        assert np.array_equal(alone.depth[0], plan.depth[row, :width])
        for one, many in zip(cut(alone, *pair), together):
            assert np.array_equal(one[0], many[row, :, :width]) and not many[row, :, width:].any()
        if plan.replacement is not None:
            inside = np.isfinite(alone.depth[0])
            assert np.array_equal(alone.replacement[0][inside], plan.replacement[row, :width][inside])
