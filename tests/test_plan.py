"""Mask plans: equal to the plain reference, exact rates, disjoint copies, nothing but the key matters."""

import numpy as np
import pytest
import torch
from helpers import BOS, EOS, PAD, cut, draw_plan, make_planner, make_rows, make_vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import plan_reference as reference

from fairseq_maskplugins.decoupled_mlm.rates import Rates
from fairseq_maskplugins.decoupled_mlm.sample import PLAN_KEY, mask_sample
from fairseq_maskplugins.rng import GOLDEN, SequenceDraws, mix, to_uniform
from fairseq_maskplugins.vocabulary import is_padding_word

VOCABULARY = make_vocabulary()
PAIRS = [(0.15, 0.15), (0.4, 0.4), (0.8, 0.8), (1.0, 1.0), (0.4, 0.2), (0.2, 0.4), (0.4, 1.0), (0.05, 0.12), (0.2, 0.6)]
LENGTHS = [0, 1, 2, 5, 17, 64, 3, 40]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize("budget", ["exact", "whole"])
@pytest.mark.parametrize("masker", ["uniform", "whole_word"])
def test_equals_the_reference(masker, budget, pair):
    tokens = make_rows(LENGTHS * 3, VOCABULARY, eos_every=11)
    planner = make_planner(masker, VOCABULARY, budget)
    draws = SequenceDraws(5, 2, np.arange(len(tokens)))
    plan = planner.draw(tokens, draws)
    corrupted, predicted = cut(plan, *pair)
    starts, maskable = planner.find_units(tokens, draws)
    width = tokens.shape[1]
    bits, u_row = draws.bits("unit", width), draws.uniform("row-cut", 1)
    keys, u_unit = bits >> np.uint64(32), to_uniform(mix(bits + GOLDEN))
    for row in range(len(tokens)):
        units = reference.ranked(reference.units_of(starts[row], maskable[row]), keys[row])
        if budget == "exact" and draws.bits("row-cut", 1)[row, 0] & np.uint64(1):  # units lose their first tokens
            units = [unit[::-1] for unit in units]
        expected = reference.masks(units, *pair, budget, u_row[row, 0], u_unit[row])
        assert len(expected) == corrupted.shape[1]
        for copy, (is_corrupted, is_predicted) in enumerate(expected):
            assert set(np.flatnonzero(corrupted[row, copy])) == is_corrupted
            assert set(np.flatnonzero(predicted[row, copy])) == is_predicted


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize(
    "masker, budget", [("uniform", "exact"), ("uniform", "whole"), ("whole_word", "whole"), ("whole_word", "exact")]
)
@pytest.mark.parametrize("length", [5, 40])
def test_expected_counts_are_exact(masker, budget, pair, length):
    """Mean counts over 4,000 rows lie within 4.5 standard errors of rate * n, the error taken from the sample."""
    corruption, prediction = pair
    tokens = np.repeat(make_rows([length], VOCABULARY, seed=length), 4000, axis=0)
    plan = draw_plan(make_planner(masker, VOCABULARY, budget), tokens)
    corrupted, predicted = cut(plan, corruption, prediction)
    per_copy = corrupted.sum(axis=2)  # [B, K]
    for counts, rate in [(per_copy[:, c], corruption) for c in range(per_copy.shape[1])] + [
        (predicted.sum(axis=(1, 2)), prediction)
    ]:
        error = counts.std() / np.sqrt(len(counts))
        assert abs(counts.mean() - rate * length) <= 4.5 * error + 1e-9
        if masker == "uniform" or budget == "exact":
            assert np.abs(counts - rate * length).max() < 2  # floor or ceiling, for windows the difference of two


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize("masker", ["uniform", "whole_word"])
def test_copies_are_disjoint_and_inside(masker, pair):
    tokens = make_rows(LENGTHS, VOCABULARY)
    corrupted, predicted = cut(draw_plan(make_planner(masker, VOCABULARY), tokens), *pair)
    assert not (predicted & ~corrupted).any()
    assert predicted.sum(axis=1).max() <= 1
    special = np.isin(tokens, [BOS, EOS, PAD])
    assert not corrupted.any(axis=1)[special].any()
    if pair[1] == 1.0:
        assert np.array_equal(predicted.any(axis=1), ~special)


def test_a_higher_rate_selects_a_superset():
    tokens = make_rows(LENGTHS, VOCABULARY)
    for masker, budget in (("uniform", "exact"), ("whole_word", "whole"), ("whole_word", "exact")):
        plan = draw_plan(make_planner(masker, VOCABULARY, budget), tokens)
        before = np.zeros(tokens.shape, dtype=bool)
        for rate in (0.001, 0.1, 0.25, 0.5, 0.7, 0.999, 1.0):
            now = cut(plan, rate, rate)[0][:, 0]
            assert not (before & ~now).any()
            before = now


@pytest.mark.parametrize("rate", [1e-4, 0.3, 0.999, 1.0])
def test_whole_never_splits_a_unit(rate):
    tokens = make_rows([30] * 200, VOCABULARY)
    planner = make_planner("whole_word", VOCABULARY)
    plan = draw_plan(planner, tokens)
    corrupted = cut(plan, rate, rate)[0][:, 0]
    starts, maskable = planner.find_units(tokens, SequenceDraws(1, 1, np.arange(200)))
    for row in range(len(tokens)):
        for unit in reference.units_of(starts[row], maskable[row]):
            assert len(set(corrupted[row, unit])) == 1


def test_selection_does_not_favour_a_position():
    """Every position of 20,000 rows is masked at the rate, within 4.5 binomial standard errors. Words at a row's ends are
    shorter than those that straddle its middle, and a long unit is less often taken whole; so with words the two ends
    may differ from the middle, but not from each other: word boundaries here are as likely anywhere, and a row read
    backwards has the same law."""
    tokens = make_rows([20] * 20000, VOCABULARY)
    error = np.sqrt(0.15 * 0.85 / len(tokens))
    share = cut(draw_plan(make_planner("uniform", VOCABULARY), tokens), 0.15, 0.15)[0][:, 0, 1:21].mean(axis=0)
    assert np.abs(share - 0.15).max() < 4.5 * error
    share = cut(draw_plan(make_planner("whole_word", VOCABULARY), tokens), 0.15, 0.15)[0][:, 0, 1:21].mean(axis=0)
    assert np.abs(share - share[::-1]).max() < 4.5 * np.sqrt(2) * error
    assert share[0] > share[9]  # the edge effect of short rows that the maskers' README tells of


def test_equal_lines_get_different_masks():
    """20,000 copies of one line of 40 tokens: C(40, 16) is 6e10 masks, so hardly any repeat."""
    tokens = np.repeat(make_rows([40], VOCABULARY), 20000, axis=0)
    corrupted = cut(draw_plan(make_planner("uniform", VOCABULARY), tokens), 0.4, 0.4)[0][:, 0]
    assert len(np.unique(np.packbits(corrupted, axis=1), axis=0)) > 19_990


def test_masks_change_with_epoch_and_seed_only():
    tokens = make_rows(LENGTHS, VOCABULARY)
    planner = make_planner("whole_word", VOCABULARY, random_token_prob=0.1, leave_unmasked_prob=0.1)
    first = draw_plan(planner, tokens, seed=1, epoch=1)
    assert np.array_equal(first.depth, draw_plan(planner, tokens, seed=1, epoch=1).depth)
    for seed, epoch in ((1, 2), (2, 1)):
        other = draw_plan(planner, tokens, seed=seed, epoch=epoch)
        assert not np.array_equal(first.depth, other.depth)
    # alone, in another order, and beside a longer row that pads them further
    for ids in ([6], [4, 1], [5, 7, 0]):
        width = max(np.flatnonzero(tokens[i] != PAD).max() + 1 for i in ids)
        part = draw_plan(planner, tokens[ids][:, :width], ids=np.array(ids))
        assert np.array_equal(part.depth, first.depth[ids][:, :width])
        inside = np.isfinite(part.depth)
        assert np.array_equal(part.replacement[inside], first.replacement[ids][:, :width][inside])


def test_global_generators_are_untouched():
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    tokens = make_rows(LENGTHS, VOCABULARY)
    planner = make_planner("uniform", VOCABULARY, random_token_prob=0.3, run_length=2, run_stdev=1.0)
    cut(draw_plan(planner, tokens), 0.4, 0.9)
    assert np.array_equal(before[0], np.random.get_state()[1])
    assert torch.equal(before[1], torch.get_rng_state())


def make_sample(tokens, plan):
    return {
        "id": torch.arange(len(tokens)),
        "net_input": {"src_tokens": torch.from_numpy(tokens), "src_lengths": torch.from_numpy((tokens != PAD).sum(1))},
        "nsentences": len(tokens),
        "ntokens": int((tokens != PAD).sum()),
        PLAN_KEY: {k: None if v is None else torch.from_numpy(v) for k, v in plan._asdict().items()},
    }


def test_replacement_shares_and_kinds():
    """80-10-10 over 40,000 words: shares within 4.5 binomial standard errors, one draw per unit, no special drawn."""
    tokens = make_rows([40] * 3000, VOCABULARY)
    planner = make_planner("whole_word", VOCABULARY, random_token_prob=0.1, leave_unmasked_prob=0.1)
    plan = draw_plan(planner, tokens)
    starts, maskable = planner.find_units(tokens, SequenceDraws(1, 1, np.arange(len(tokens))))
    is_mask, same = plan.replacement == VOCABULARY.mask, plan.replacement == tokens
    units = starts.sum()
    error = 4.5 * np.sqrt(0.1 * 0.9 / units)
    assert abs((is_mask & starts).sum() / units - 0.8) < 4.5 * np.sqrt(0.8 * 0.2 / units)
    # of 95 ordinary words one is the word itself
    assert abs((same & starts).sum() / units - (0.1 + 0.1 / 95)) < error
    drawn = plan.replacement[maskable & ~is_mask & ~same]
    assert drawn.min() >= 4 and drawn.max() < VOCABULARY.mask and len(np.unique(drawn)) == 95
    for row in range(300):
        for unit in reference.units_of(starts[row], maskable[row]):
            kinds = {"mask" if is_mask[row, p] else "other" for p in unit}
            assert len(kinds) == 1


def test_padding_words():
    """Those that fairseq writes, ``madeupword{:04d}``; a text may hold words that begin likewise."""
    assert all(map(is_padding_word, ("madeupword0000", "madeupword0007", "madeupword9999", "madeupword50264")))
    assert not any(map(is_padding_word, ("madeupword", "madeupword7", "madeupwords", "a madeupword0007", "madeupword0007b")))


def test_replacement_by_frequency():
    weights = np.zeros(95)
    weights[[3, 10]] = 1, 3
    vocabulary = make_vocabulary(cumulative=np.cumsum(weights) / weights.sum())
    tokens = make_rows([40] * 500, vocabulary)
    plan = draw_plan(make_planner("uniform", vocabulary, random_token_prob=1.0), tokens)
    drawn = plan.replacement[np.isfinite(plan.depth)]
    assert set(drawn) == {7, 14}
    assert abs((drawn == 14).mean() - 0.75) < 4.5 * np.sqrt(0.75 * 0.25 / len(drawn))


def test_masked_sample_has_the_stock_format():
    tokens = make_rows([5, 9], VOCABULARY)
    plan = draw_plan(make_planner("uniform", VOCABULARY), tokens)
    sample = make_sample(tokens, plan)
    masked = mask_sample(sample, Rates(0.2, 0.5), PAD, VOCABULARY.mask, include_targets=True)
    copies = 3
    assert masked["id"].tolist() == [0, 0, 0, 1, 1, 1]
    assert masked["nsentences"] == 6 and masked["ntokens"] == copies * sample["ntokens"]
    source, target = masked["net_input"]["src_tokens"], masked["target"]
    assert source.shape == target.shape == (6, tokens.shape[1])
    assert torch.equal(masked["net_input"]["target_tokens"], target)
    assert torch.equal(masked["tokens"], torch.from_numpy(tokens).repeat_interleave(3, dim=0))
    predicted = target != PAD
    assert torch.equal(target[predicted], masked["tokens"][predicted])
    assert (source[predicted] == VOCABULARY.mask).all()
    assert torch.equal(source[source != VOCABULARY.mask], masked["tokens"][source != VOCABULARY.mask])
    # the input of the step is what the next epoch's step gets too
    assert PLAN_KEY in sample and torch.equal(sample["net_input"]["src_tokens"], torch.from_numpy(tokens))


def test_rows_without_maskable_tokens():
    tokens = make_rows([0, 0], VOCABULARY)
    for masker in ("uniform", "whole_word"):
        plan = draw_plan(make_planner(masker, VOCABULARY, random_token_prob=0.5), tokens)
        masked = mask_sample(make_sample(tokens, plan), Rates(0.4, 1.0), PAD, VOCABULARY.mask)
        assert torch.equal(masked["net_input"]["src_tokens"], masked["tokens"])
        assert (masked["target"] == PAD).all()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=5),
    st.floats(1e-4, 1.0),
    st.floats(1e-2, 1.0),
    st.sampled_from(["uniform", "whole_word"]),
    st.sampled_from(["exact", "whole"]),
    st.integers(0, 2**64 - 1),
)
def test_any_rates(lengths, corruption, prediction, masker, budget, seed):
    corruption = max(corruption, prediction / 50)  # at most 50 copies
    tokens = make_rows(lengths, VOCABULARY, seed=seed % 1000)
    plan = draw_plan(make_planner(masker, VOCABULARY, budget), tokens, seed=seed)
    corrupted, predicted = cut(plan, corruption, prediction)
    assert not (predicted & ~corrupted).any()
    assert predicted.sum(axis=1).max() <= 1
    assert not corrupted.any(axis=1)[np.isin(tokens, [BOS, EOS, PAD])].any()
    n = np.array(lengths)
    if budget == "exact":
        assert (np.abs(predicted.sum(axis=(1, 2)) - prediction * n) < 1 + 1e-6).all()
