"""Span masker: the law of run lengths, exact budgets at every rate, rows of any length, no bias to a position."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from helpers import EOS, PAD, draw_plan, make_planner, make_rows, make_vocabulary
from reference import span_reference as reference
from reference.plan_reference import units_of
from scipy import stats

from fairseq_maskplugins.decoupled_mlm.plan import select
from fairseq_maskplugins.decoupled_mlm.rates import Rates
from fairseq_maskplugins.errors import UsageError
from fairseq_maskplugins.maskers.span import _Sampler, first_run_distribution, span_length_distribution
from fairseq_maskplugins.rng import SequenceDraws

VOCABULARY = make_vocabulary()
TOKEN = {"span_unit": "token"}
LIMIT = 1e-3  # of a chi-square test's probability; keys are fixed, so a test passes always or never


def cut(plan, rate):
    return select(torch.from_numpy(plan.depth), torch.from_numpy(plan.count), Rates(rate, rate))[0][:, 0].numpy()


def unit_starts(planner, tokens, seed=1):
    return planner.find_units(tokens, SequenceDraws(seed, 1, np.arange(len(tokens))))[0]


def test_the_law_is_spanberts():
    """p = 0.2, at most 10: mean 3.80, as the paper gives it; the ends of the interval of p are uniform and constant."""
    law = span_length_distribution(0.2, 10)
    assert np.allclose(law, reference.law(0.2, 10))
    assert round(float(law @ np.arange(1, 11)), 2) == 3.80
    assert np.allclose(span_length_distribution(0.0, 4), 0.25)
    assert span_length_distribution(1.0, 3).tolist() == [1, 0, 0]


@pytest.mark.parametrize("p, longest", [(0.2, 10), (0.0, 10), (1.0, 5), (0.2, 1), (0.9, 40), (0.0, 4096)])
def test_lengths_are_those_of_a_search(p, longest):
    law = span_length_distribution(p, longest)
    cuts = np.cumsum(law)[:-1]
    steps = np.arange(4096) / 4096
    u = np.concatenate([np.random.default_rng(1).random(20_000), cuts, np.nextafter(cuts, 0), steps, [1 - 2.0**-53]])
    u = u[u < 1]
    assert np.array_equal(_Sampler(law)(u), np.searchsorted(cuts, u, side="right") + 1)


def test_the_first_runs_law_by_hand():
    """Lengths 1 and 3, half and half, mean 2: P(L >= 1, 2, 3) = 1, 1/2, 1/2."""
    assert first_run_distribution(np.array([0.5, 0.0, 0.5])).tolist() == [0.5, 0.25, 0.25]


@pytest.mark.parametrize("p, longest", [(0.2, 10), (0.5, 3), (0.0, 4), (1.0, 5), (0.2, 1), (0.01, 60)])
@pytest.mark.parametrize("unit", ["word", "token"])
@pytest.mark.parametrize("eos_every", [None, 7])
def test_equals_the_reference(p, longest, unit, eos_every):
    tokens = make_rows([0, 1, 2, 3, 17, 40, 64, 5] * 4, VOCABULARY, eos_every=eos_every)
    options = {"span_geometric_p": p, "span_max_length": longest, "span_unit": unit}
    planner = make_planner("span", VOCABULARY, options=options)
    draws = SequenceDraws(1, 1, np.arange(len(tokens)))
    starts, maskable = planner.find_units(tokens, draws)
    u = draws.uniform("span-length", tokens.shape[1])
    begins = VOCABULARY.find_word_begins()
    for row in range(len(tokens)):
        atoms = begins[tokens[row]] if unit == "word" else maskable[row]
        expected = reference.starts(atoms, maskable[row], reference.law(p, longest), u[row])
        assert np.flatnonzero(starts[row]).tolist() == expected


@pytest.mark.parametrize("unit", ["token", "word"])
def test_run_lengths_follow_the_law(unit):
    """Runs 2 to 6 of each row, which no edge can cut (6 runs of 10 atoms fit in 60), are independent draws of the law:
    chi-square over 10,000 of them."""
    vocabulary = make_vocabulary(begins_every=1) if unit == "word" else VOCABULARY
    tokens = make_rows([60] * 2000, vocabulary)
    starts = unit_starts(make_planner("span", vocabulary, options={"span_unit": unit}), tokens)
    lengths = np.concatenate([np.diff(np.flatnonzero(row)[1:7]) for row in starts])
    observed = np.bincount(lengths, minlength=11)[1:]
    assert observed.sum() == len(lengths) == 10_000
    assert stats.chisquare(observed, span_length_distribution(0.2, 10) * len(lengths)).pvalue > LIMIT
    # the test has the power to tell the law from one that is clipped instead of renormalised
    clipped = 0.8 ** np.arange(10) * 0.2
    clipped[-1] += 1 - clipped.sum()
    assert stats.chisquare(observed, clipped * len(lengths)).pvalue < 1e-9


def test_selected_spans_follow_the_law():
    """Spans that masking began, in random order up to the cut, have the law of all spans: whether one is begun depends
    on those before it, not on its own length (Wald). The one at the cut counts with its whole length. Rows are long,
    and the row's first and last runs, which the edges cut, are left out."""
    tokens = make_rows([400] * 300, VOCABULARY)
    planner = make_planner("span", VOCABULARY, options=TOKEN)
    plan = draw_plan(planner, tokens)
    starts, maskable = planner.find_units(tokens, SequenceDraws(1, 1, np.arange(len(tokens))))
    chosen = cut(plan, 0.15)
    lengths = [
        len(unit) for row in range(len(tokens)) for unit in units_of(starts[row], maskable[row])[1:-1] if chosen[row, unit].any()
    ]
    observed = np.bincount(lengths, minlength=11)[1:]
    assert observed.sum() > 4000
    assert stats.chisquare(observed, span_length_distribution(0.2, 10) * observed.sum()).pvalue > LIMIT


def test_runs_begin_anywhere_alike():
    """A run begins at each position after the first with probability 1 / 3.80: the tiling has no origin."""
    tokens = make_rows([40] * 20000, VOCABULARY)
    share = unit_starts(make_planner("span", VOCABULARY, options=TOKEN), tokens)[:, 2:41].mean(axis=0)
    expected = 1 / float(span_length_distribution(0.2, 10) @ np.arange(1, 11))
    assert np.abs(share - expected).max() < 4.5 * np.sqrt(expected * (1 - expected) / len(tokens))


def test_edge_effect_is_the_computed_one():
    """Rows of 7 tokens, lengths 1 to 3, 3 masked: each position is masked as often as exact enumeration of tilings and
    orders says, within 4.5 binomial standard errors. Edge runs are shorter, so edges are masked a little more often."""
    law = [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)]
    exact = [float(q) for q in reference.position_probability(7, law, 3)]
    assert abs(sum(exact) - 3) < 1e-12 and exact == exact[::-1]  # neither end is favoured over the other
    tokens = make_rows([7] * 60000, VOCABULARY)
    planner = make_planner("span", VOCABULARY, options={**TOKEN, "span_max_length": 3})
    masker = planner.masker
    cumulative = np.cumsum([float(q) for q in law])
    masker.draw_length.cumulative = cumulative[:-1]
    masker.draw_first.cumulative = np.cumsum(first_run_distribution(np.array([0.5, 0.25, 0.25])))[:-1]
    share = cut(draw_plan(planner, tokens), 3 / 7 + 1e-12)[:, 1:8].mean(axis=0)
    for measured, expected in zip(share, exact):
        assert abs(measured - expected) < 4.5 * (expected * (1 - expected) / len(tokens)) ** 0.5


def test_short_rows_have_no_favourite_position():
    """50,000 rows of 20 tokens at 0.15: away from the edges every position is masked within 20% of the mean."""
    tokens = make_rows([20] * 50000, VOCABULARY)
    share = cut(draw_plan(make_planner("span", VOCABULARY, options=TOKEN), tokens), 0.15)[:, 1:21].mean(axis=0)
    assert abs(share.mean() - 0.15) < 1e-3
    inner = share[3:-3]
    assert np.abs(share - share[::-1]).max() < 4.5 * (2 * 0.15 * 0.85 / 50000) ** 0.5  # the two ends are alike
    assert np.abs(inner / inner.mean() - 1).max() < 0.2
    assert 0.05 < share.min() and share.max() < 0.5  # neither never nor always


@pytest.mark.parametrize("unit", ["token", "word"])
@pytest.mark.parametrize("rate", [0.01, 0.15, 0.4, 0.8, 0.95, 1.0])
def test_budget_is_exact_on_rows_of_any_length(rate, unit):
    lengths = [0, 1, 2, 16, 128, 512, 4096]
    tokens = make_rows(lengths, VOCABULARY)
    chosen = cut(draw_plan(make_planner("span", VOCABULARY, options={"span_unit": unit}), tokens), rate)
    for row, length in enumerate(lengths):
        assert chosen[row].sum() in (int(np.floor(rate * length)), int(np.ceil(rate * length - 1e-9)))
    assert not chosen[(tokens == PAD) | (tokens == EOS)].any()


def test_high_rates_take_no_longer():
    """A thousand rows of 128 at 0.95 are masked: a masker that redraws until spans fit would not come back. A bound on
    the number of draws, not on the clock: runs needed at most are the row's tokens."""
    calls = []
    draws = SequenceDraws(1, 1, np.arange(1000))
    uniform = draws.uniform
    draws.uniform = lambda stream, length: calls.append((stream, length)) or uniform(stream, length)
    planner = make_planner("span", VOCABULARY, options={**TOKEN, "span_geometric_p": 0.9})
    planner.draw(make_rows([128] * 1000, VOCABULARY), draws)
    assert max(length for stream, length in calls if stream == "span-length") <= 130
    assert sum(stream == "span-length" for stream, _ in calls) <= 2


def test_rows_do_not_depend_on_their_batch():
    """A row alone, beside short ones and beside a long one; the long row makes more draws necessary."""
    tokens = make_rows([16, 512, 3, 40], VOCABULARY)
    planner = make_planner("span", VOCABULARY)
    together = draw_plan(planner, tokens)
    for row in range(len(tokens)):
        width = int((tokens[row] != PAD).sum())
        alone = draw_plan(planner, tokens[row : row + 1, :width], ids=np.array([row]))
        assert np.array_equal(alone.depth[0], together.depth[row, :width])


def test_no_draw_is_missing_where_runs_are_short():
    """Runs of a row can be far shorter than the law's mean; then more of them are drawn, and it is the same tiling as
    if all had been drawn at once. Here the mean is put at ten times what it is, so that this happens."""
    planner = make_planner("span", VOCABULARY, options=TOKEN)
    planner.masker.mean *= 10
    tokens = make_rows([60] * 40, VOCABULARY)
    asked = []
    draws = SequenceDraws(1, 1, np.arange(len(tokens)))
    uniform = draws.uniform
    draws.uniform = lambda stream, length: asked.append(length) or uniform(stream, length)
    starts, _ = planner.find_units(tokens, draws)
    assert len(asked) == 2 and asked[0] < asked[1] == tokens.shape[1]
    assert np.array_equal(starts, unit_starts(make_planner("span", VOCABULARY, options=TOKEN), tokens))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"span_geometric_p": 1.5}, r"--span-geometric-p must lie in \[0, 1\], got 1.5"),
        ({"span_geometric_p": float("nan")}, r"--span-geometric-p must lie in \[0, 1\], got nan"),
        ({"span_max_length": 0}, r"--span-max-length must lie in \[1, 4096\], got 0"),
        ({"span_unit": "piece"}, "--span-unit must be word or token, got 'piece'"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(UsageError, match=message):
        make_planner("span", VOCABULARY, options=options)


def test_words_need_a_tokenizer():
    with pytest.raises(UsageError, match="--span-unit word .*give the --bpe"):
        make_planner("span", make_vocabulary(find_word_begins=None))
    make_planner("span", make_vocabulary(find_word_begins=None), options=TOKEN)
