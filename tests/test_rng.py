"""Keyed draws: known answers, the same as plain integer arithmetic, uniform, independent, without collisions."""

import numpy as np
import pytest
from reference import rng_reference as reference
from scipy import stats

from fairseq_maskplugins import rng

KNOWN = [
    [14497059202228071728, 13884505846481367312, 13871673060802610656],
    [3330604029967798490, 5157498121216160443, 15534616406402337565],
]
KNOWN_NEGATIVE = [[1827452805075936986]]


def test_known_answers():
    """Written down once: a change of these numbers changes every user's masks."""
    draws = rng.SequenceDraws(seed=1, epoch=2, ids=np.array([0, 3]))
    assert draws.bits("unit-key", 3).tolist() == KNOWN
    assert rng.SequenceDraws(-1, 0, np.array([5])).bits("x", 1).tolist() == KNOWN_NEGATIVE
    assert draws.uniform("unit-key", 3)[0, 0] == (KNOWN[0][0] >> 11) / 2**53


def test_equals_plain_integers():
    ids = np.array([0, 1, 2**40, 2**63 - 1, -7])
    for seed, epoch in ((0, 1), (-3, 2), (2**63 + 5, 0)):
        fast = rng.SequenceDraws(seed, epoch, ids).bits("replacement-kind", 5)
        plain = [[reference.draw("replacement-kind", (seed, epoch, int(i)), p) for p in range(5)] for i in ids]
        assert fast.tolist() == plain


def test_single_positions_equal_the_matrix():
    draws = rng.SequenceDraws(9, 1, np.arange(6))
    rows, columns = np.array([5, 0, 3, 3]), np.array([7, 0, 2, 3])
    assert np.array_equal(draws.uniform_at("s", rows, columns), draws.uniform("s", 8)[rows, columns])


def test_rows_do_not_depend_on_their_batch():
    whole = rng.SequenceDraws(9, 1, np.arange(20)).bits("s", 30)
    part = rng.SequenceDraws(9, 1, np.array([13, 2])).bits("s", 11)
    assert np.array_equal(part, whole[[13, 2], :11])


@pytest.mark.parametrize("axis", ["position", "id", "epoch", "seed", "stream"])
def test_uniform_along_every_part_of_the_key(axis):
    """Chi-square of 2^16 draws over 256 cells, for the highest and the lowest byte; fixed keys, so no flakiness."""
    n = 1 << 16
    if axis == "position":
        z = rng.SequenceDraws(1, 1, np.array([4])).bits("s", n).ravel()
    elif axis == "id":
        z = rng.SequenceDraws(1, 1, np.arange(n)).bits("s", 1).ravel()
    elif axis == "epoch":
        z = np.concatenate([rng.SequenceDraws(1, epoch, np.arange(64)).bits("s", 1).ravel() for epoch in range(n // 64)])
    elif axis == "seed":
        z = np.concatenate([rng.SequenceDraws(seed, 1, np.arange(64)).bits("s", 1).ravel() for seed in range(n // 64)])
    else:
        z = np.concatenate([rng.SequenceDraws(1, 1, np.arange(64)).bits(f"s{i}", 1).ravel() for i in range(n // 64)])
    for shift in (56, 0):
        cells = np.bincount(((z >> np.uint64(shift)) & np.uint64(255)).astype(int), minlength=256)
        assert stats.chisquare(cells).pvalue > 1e-3
    # neighbours along the axis are uncorrelated: r is normal with deviation 1/sqrt(n)
    u = rng.to_uniform(z)
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 4 / np.sqrt(n)


def test_every_bit_is_fair():
    z = rng.SequenceDraws(3, 1, np.arange(512)).bits("s", 128).ravel()
    ones = np.array([((z >> np.uint64(bit)) & np.uint64(1)).sum() for bit in range(64)])
    assert np.abs(ones - len(z) / 2).max() < 4.5 * np.sqrt(len(z)) / 2


def test_streams_are_independent():
    a = rng.SequenceDraws(1, 1, np.arange(256)).uniform("unit-key", 256).ravel()
    b = rng.SequenceDraws(1, 1, np.arange(256)).uniform("unit-cut", 256).ravel()
    table = np.histogram2d(a, b, bins=16)[0]
    assert stats.chi2_contingency(table).pvalue > 1e-3


def test_no_collisions():
    """A million rows in two streams, epochs and seeds have different keys in each lane, and different first draws."""
    ids = np.arange(250_000)
    keys = [
        rng.make_keys((seed, epoch, ids), stream) for seed, epoch, stream in ((1, 1, "a"), (1, 2, "a"), (2, 1, "a"), (1, 1, "b"))
    ]
    for lane in (0, 1):
        assert len(np.unique(np.concatenate([key[lane] for key in keys]))) == 1_000_000
    draws = np.concatenate([rng.bits((a[:, None], b[:, None]), np.arange(2)).ravel() for a, b in keys])
    assert len(np.unique(draws)) == 2_000_000  # 2^21 draws of 64 bits: a repetition has probability 1e-7


def test_words_do_not_trade_places():
    """(seed 1, epoch 2) is not (seed 2, epoch 1), nor is a difference of one word undone by another's."""
    seen = {
        tuple(lane.tobytes() for lane in rng.make_keys((seed, epoch, sample), "s"))
        for seed in range(-20, 20)
        for epoch in range(20)
        for sample in range(20)
    }
    assert len(seen) == 40 * 20 * 20


def test_uniform_range():
    edges = rng.to_uniform(np.array([0, 2**64 - 1], dtype=np.uint64))
    assert edges[0] == 0.0 and edges[1] < 1.0
