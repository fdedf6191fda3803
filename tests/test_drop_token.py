"""DropToken's draw and packing."""

import math

import numpy as np
import pytest
import torch
from tiny_roberta import build, make_dictionary, make_rows

from fairseq_maskplugins.drop_token.keep import draw_dropped, pack

LENGTHS = (12, 3, 9, 12, 2, 7)


def draw(tokens, probability, protected=None, pad=1, **key):
    tokens = np.asarray(tokens)
    protected = np.zeros(tokens.shape, bool) if protected is None else protected
    return draw_dropped(tokens, tokens != pad, protected, probability, **{**dict(seed=1, update=5, rank=0), **key})


def test_number_and_choice_of_dropped_tokens():
    rows, length, probability = 4000, 9, 0.3
    tokens = np.random.RandomState(0).randint(4, 99, (rows, length))
    dropped = draw(tokens, probability)
    n = length - 1  # the first token stays
    assert not dropped[:, 0].any()
    counts = dropped.sum(1)
    assert set(counts) == {math.floor(probability * n), math.floor(probability * n) + 1}
    # five standard deviations, of the number per row (it is one of two neighbours) and of each position's share
    part = probability * n - math.floor(probability * n)
    assert abs(counts.mean() - probability * n) < 5 * math.sqrt(part * (1 - part) / rows)
    shares = dropped[:, 1:].mean(0)
    assert np.abs(shares - probability).max() < 5 * math.sqrt(probability * (1 - probability) / rows)


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
def test_protected_tokens_and_padding_are_never_dropped(probability):
    tokens = make_rows(make_dictionary(), LENGTHS * 20).numpy()
    protected = np.random.RandomState(1).rand(*tokens.shape) < 0.4
    dropped = draw(tokens, probability, protected)
    droppable = (tokens != 1) & ~protected & (np.arange(tokens.shape[1]) > 0)
    assert not (dropped & ~droppable).any()
    expected = probability * droppable.sum(1)
    assert (np.abs(dropped.sum(1) - expected) < 1).all()


def test_draw_depends_on_the_row_and_the_key_alone():
    dictionary = make_dictionary(200)
    tokens = make_rows(dictionary, LENGTHS, seed=1).numpy()
    dropped = draw(tokens, 0.5)
    # not on the rows around it, on how micro-batches of an update are cut, or on the width and side of the padding
    for part in (slice(0, 2), slice(2, 6)):
        np.testing.assert_array_equal(draw(tokens[part], 0.5), dropped[part])
    wide = np.pad(tokens, ((0, 0), (0, 3)), constant_values=1)
    np.testing.assert_array_equal(draw(wide, 0.5)[:, :-3], dropped)
    left = make_rows(dictionary, LENGTHS, seed=1, left=True).numpy()
    for one, other, length in zip(draw(left, 0.5), dropped, LENGTHS):
        np.testing.assert_array_equal(one[-length:], other[:length])
    for key in (dict(seed=2), dict(update=6), dict(rank=1)):
        assert (draw(tokens, 0.5, **key) != dropped).any(), key
    swapped = tokens.copy()
    swapped[0, [3, 4]] = tokens[0, [4, 3]]
    assert (draw(swapped, 0.5)[0] != dropped[0]).any()  # the order of the tokens counts
    np.testing.assert_array_equal(draw(swapped, 0.5)[1:], dropped[1:])


def test_draws_leave_global_generators_alone():
    np.random.seed(3), torch.manual_seed(3)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    model = build("droptoken_roberta", make_dictionary(), drop_token_prob=0.5)
    np.random.seed(3), torch.manual_seed(3)
    model.draw_kept(make_rows(make_dictionary(), LENGTHS))
    assert (np.random.get_state()[1] == before[0]).all() and torch.equal(torch.get_rng_state(), before[1])


def test_packing_against_a_loop():
    generator = np.random.RandomState(2)
    valid = make_rows(make_dictionary(), LENGTHS).numpy() != 1
    keep = valid & (generator.rand(*valid.shape) < 0.6)
    keep[:, 0] = True
    kept = pack(keep, valid, torch.device("cpu"))
    assert kept.column.shape[1] == keep.sum(1).max() and kept.longest == max(LENGTHS)
    for b in range(len(keep)):
        columns = [t for t in range(keep.shape[1]) if keep[b, t]]
        fill = kept.column.shape[1] - len(columns)
        assert kept.column[b].tolist() == columns + [keep.shape[1]] * fill
        assert kept.position[b].tolist() == [int(valid[b, :t].sum()) for t in columns] + [0] * fill
        assert kept.filler[b].tolist() == [False] * len(columns) + [True] * fill
