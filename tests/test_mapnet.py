"""MAP-Net's pure parts: proposal, sampling, weights, preference loss."""

import math

import numpy as np
import pytest
import torch
from reference import mapnet_reference as reference

from fairseq_maskplugins.mapnet.preference import compare_masks
from fairseq_maskplugins.mapnet.proposal import draw_pair, entropy_share, log_inclusion, propose, weigh
from fairseq_maskplugins.rng import SequenceDraws
from fairseq_maskplugins.rng_device import row_bits, row_uniform

Q = [0.45, 0.25, 0.15, 0.1, 0.05]
F = [2.0, -1.0, 0.5, 3.0, 7.0]  # any quantity of the position alone


def test_device_draws_are_the_same_bits():
    ids = np.array([0, 1, 5, 2**40, -3])
    for seed, update in ((1, 0), (-7, 12), (2**63 + 5, 10**12)):
        expected = SequenceDraws(seed, update, ids).bits("mapnet-0", 33)
        found = row_bits((seed, update), torch.from_numpy(ids), "mapnet-0", 33)
        assert (found.numpy().view(np.uint64) == expected).all()
    u = row_uniform((1, 2), torch.arange(500), "x", 400)
    assert 0 < u.min() and u.max() < 1
    assert abs(u.mean() - 0.5) < 5 / math.sqrt(12 * u.numel())


@pytest.mark.parametrize("mix", [0.0, 0.1, 1.0])
def test_proposal_equals_the_formula(mix):
    scores = torch.tensor([[1.0, -2.0, 0.5, 3.0, 9.0], [0.0, 1.0, 2.0, 3.0, 4.0]])
    maskable = torch.tensor([[1, 1, 0, 1, 0], [0, 0, 1, 1, 1]]).bool()
    q = propose(scores, maskable, 0.7, mix).exp()
    for row in range(2):
        expected = reference.propose(scores[row].tolist(), maskable[row].tolist(), 0.7, mix)
        assert q[row].tolist() == pytest.approx(expected, abs=1e-6)


def taken_rows(outcomes, length):
    taken = torch.zeros(len(outcomes), 2, length, dtype=torch.bool)
    for row, (_, chosen, _) in enumerate(outcomes):
        taken[row, :, list(chosen)] = True
    return taken


def expected_estimate(k, **options):
    """Expectation of the weighted mean of F over all outcomes, by enumeration."""
    outcomes = list(reference.outcomes(Q, k))
    taken = taken_rows(outcomes, len(Q))
    threshold = torch.tensor([[t for _, _, t in outcomes]]).double().t()[:, None]
    perturbed = torch.where(taken, threshold + 1, threshold)
    log_q = torch.tensor(Q).double().log().expand(len(outcomes), -1)
    weights = weigh(log_inclusion(log_q, perturbed, taken), taken, torch.full((len(outcomes),), len(Q)), **options)
    estimate = (weights.weight[:, 0] * torch.tensor(F)).sum(1) / k
    p = torch.tensor([p for p, _, _ in outcomes])
    assert float(p.sum()) == pytest.approx(1.0, abs=1e-3)
    return float((p * estimate).sum())


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_weights_are_unbiased_by_enumeration(k):
    mean = sum(F) / len(F)
    assert expected_estimate(k, normalise=False) == pytest.approx(mean, abs=0.01)
    # without weights it is another quantity altogether
    p_in = reference.inclusion_by_order(Q, k)
    assert abs(sum(p * f for p, f in zip(p_in, F)) / k - mean) > 0.15


def test_measured_bias_of_normalising_and_clipping(capsys):
    """What normalising and clipping add, by enumeration. Printed by ``pytest -s``."""
    mean = sum(F) / len(F)
    for k in (1, 2, 3, 4):
        unweighted = sum(p * f for p, f in zip(reference.inclusion_by_order(Q, k), F)) / k - mean
        limits = (math.inf, 5.0, 2.0, 1.0)
        biases = [expected_estimate(k, limit=limit) - mean for limit in limits]
        with capsys.disabled():
            shown = "  ".join(f"limit {limit:g} {bias:+.3f}" for limit, bias in zip(limits, biases))
            print(f"\nmean {mean:.2f}, k={k}: no weights {unweighted:+.3f}  normalised: {shown}", end="")
        assert 0.02 < abs(biases[0]) < abs(unweighted) / 3
        # the rare tokens have large values here: clipping their weights makes the estimate smaller
        assert biases[0] > biases[2] > biases[3]


def test_normalised_weights_have_the_theorems_variance(capsys):
    """Estimates of a mean over 16 tokens from masks of 6: a proposal proportional to what is estimated leaves a small
    part of the uniform masks' variance; without normalising, the threshold's noise makes it larger than theirs."""
    rows, n, k = 20000, 16, 6
    f = torch.exp(0.7 * torch.randn(n, generator=torch.Generator().manual_seed(0)))

    def variance(q, **options):
        log_q = torch.log(q / q.sum()).expand(rows, -1)
        pair = draw_pair(log_q, (1, 0), torch.arange(rows))
        taken = pair.depth.floor() < k
        weights = weigh(log_inclusion(log_q, pair.perturbed, taken), taken, torch.full((rows,), n), **options)
        estimate = (weights.weight * f).sum(-1) / k
        return float(estimate.var()), float(estimate.mean())

    uniform, proportional = variance(torch.ones(n)), variance(f)
    raw = variance(f, normalise=False)
    with capsys.disabled():
        print(f"\nvariance: uniform {uniform[0]:.4f} proportional {proportional[0]:.4f} not normalised {raw[0]:.4f}", end="")
    assert proportional[0] < uniform[0] / 4 < uniform[0] < raw[0]
    assert proportional[1] == pytest.approx(float(f.mean()), rel=0.03)


@pytest.mark.parametrize("limit, normalise", [(math.inf, False), (math.inf, True), (1.3, True)])
def test_weights_equal_the_reference(limit, normalise):
    outcomes = list(reference.outcomes(Q, 2, steps=3))
    taken = taken_rows(outcomes, len(Q))
    threshold = torch.tensor([t for _, _, t in outcomes]).double()[:, None, None]
    log_q = torch.tensor(Q).double().log().expand(len(outcomes), -1)
    log_pi = log_inclusion(log_q, torch.where(taken, threshold + 2, threshold), taken)
    found = weigh(log_pi, taken, torch.full((len(outcomes),), len(Q)), limit, normalise)
    for row, (_, chosen, t) in enumerate(outcomes):
        expected = reference.weights(Q, chosen, t, limit, normalise)
        for i in range(len(Q)):
            assert found.weight[row, 1, i] == pytest.approx(expected.get(i, 0.0), rel=1e-6)
            if i in expected and normalise:
                raw = reference.weights(Q, chosen, t, math.inf, True)[i]
                assert bool(found.clipped[row, 1, i]) == (raw > limit)
        raw = list(reference.weights(Q, chosen, t, math.inf, False).values())
        assert found.effective[row, 0] == pytest.approx(sum(raw) ** 2 / sum(w * w for w in raw) / len(raw))


def test_sampling_is_successive_draws_without_replacement():
    rows, k = 40000, 2
    log_q = torch.tensor(Q).log().expand(rows, -1)
    pair = draw_pair(log_q, (3, 0), torch.arange(rows))
    rank = pair.depth.floor()
    expected = reference.inclusion_by_order(Q, k)
    for which in range(2):
        for i, p in enumerate(expected):
            share = float((rank[:, which, i] < k).double().mean())
            assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / rows)
    # the two rankings are independent
    both = float(((rank[:, 0, 0] < k) & (rank[:, 1, 0] < k)).double().mean())
    assert abs(both - expected[0] ** 2) < 5 * math.sqrt(0.25 / rows)
    # the weights of what was really drawn estimate the mean
    taken = rank < k
    weights = weigh(log_inclusion(log_q, pair.perturbed, taken), taken, torch.full((rows,), 5), normalise=False).weight
    estimate = (weights * torch.tensor(F)).sum(-1).flatten() / k
    assert abs(float(estimate.mean()) - sum(F) / 5) < 5 * float(estimate.std()) / math.sqrt(len(estimate))


def test_draws_depend_on_the_key_and_the_id_alone():
    log_q = torch.log_softmax(torch.randn(6, 9, generator=torch.Generator().manual_seed(1)), 1)
    ids = torch.tensor([4, 8, 1, 0, 7, 3])
    whole, state = draw_pair(log_q, (1, 5), ids), torch.get_rng_state()
    part = draw_pair(log_q[2:4], (1, 5), ids[2:4])
    assert torch.equal(whole.depth[2:4], part.depth) and torch.equal(whole.perturbed[2:4], part.perturbed)
    assert torch.equal(torch.get_rng_state(), state)
    for key in ((2, 5), (1, 6)):
        assert not torch.equal(draw_pair(log_q, key, ids).depth, whole.depth)


def test_everything_taken_weighs_one():
    log_q = torch.tensor([Q]).log()
    pair = draw_pair(log_q, (1, 0), torch.tensor([0]))
    taken = torch.ones(1, 2, 5, dtype=torch.bool)
    for normalise in (False, True):
        found = weigh(log_inclusion(log_q, pair.perturbed, taken), taken, torch.tensor([5]), normalise=normalise)
        assert torch.equal(found.weight, torch.ones(1, 2, 5).double()) and (found.effective == 1).all()


def test_full_mix_is_uniform():
    """eps = 1: every token equally often in the masks, whatever the scores, and weights of 1."""
    rows, k = 20000, 3
    scores = torch.tensor([[50.0, -50.0, 0.0, 1.0, 2.0, 3.0]]).expand(rows, -1).requires_grad_()
    maskable = torch.ones(rows, 6, dtype=torch.bool)
    log_q = propose(scores, maskable, 0.1, 1.0)
    pair = draw_pair(log_q.detach(), (1, 0), torch.arange(rows))
    taken = pair.depth < k
    share = taken.double().mean(0)
    assert (share - 0.5).abs().max() < 5 * math.sqrt(0.25 / rows)
    weights = weigh(log_inclusion(log_q.detach(), pair.perturbed, taken), taken, torch.full((rows,), 6))
    assert torch.allclose(weights.weight[taken], torch.ones(1).double())
    log_q.masked_fill(~maskable, 0).sum().backward()
    assert (scores.grad == 0).all()


@pytest.mark.parametrize("scale", [1.0, 65504.0])
@pytest.mark.parametrize("mix, temperature", [(0.0, 1.0), (0.1, 1e-3), (1.0, 1.0)])
def test_edge_rows_stay_finite(scale, mix, temperature):
    """Rows of 0, 1, 2 and 6 maskable tokens; scores as large as half precision goes; k from 0 to n; equal losses."""
    count = torch.tensor([0, 1, 2, 6])
    maskable = torch.arange(6) < count[:, None]
    scores = scale * torch.tensor([[1.0, -1.0, 1.0, 0.5, -1.0, 1.0]]).half().float().expand(4, -1).clone()
    scores.requires_grad_()
    log_q = propose(scores, maskable, temperature, mix)
    pair = draw_pair(log_q.detach(), (1, 0), torch.arange(4))
    for k in (0, 1, 2, 6):
        taken = (pair.depth < k) & maskable[:, None]
        found = weigh(log_inclusion(log_q.detach(), pair.perturbed, taken), taken, count, limit=5.0)
        assert torch.isfinite(found.weight).all() and torch.isfinite(found.effective).all()
        assert (found.weight[~taken] == 0).all() and found.weight.max() <= 5
        for losses in ([1.0, 1.0], [3.0, 1.0], [6e4, 0.0]):
            preference = compare_masks(log_q, taken, torch.tensor([losses]).expand(4, -1), 1.0, 0.0)
            assert torch.isfinite(preference.loss).all()
            if losses[0] == losses[1] or k == 6:
                assert not preference.counts.any() and (preference.loss == 0).all()
            scores.grad = None
            preference.loss.sum().backward(retain_graph=True)
            assert torch.isfinite(scores.grad).all()
    share = entropy_share(log_q.detach(), count)
    assert torch.isfinite(share).all() and (share[:2] == 1).all()


def test_preference_equals_the_reference():
    log_q = torch.tensor([Q, Q, Q, Q]).log().requires_grad_()
    masks = [([0, 1], [2, 3]), ([3, 4], [0, 4]), ([0, 1], [1, 0]), ([2, 3], [1, 4])]
    losses = [[2.0, 1.0], [2.0, 1.0], [2.0, 1.0], [1.0, 1.05]]
    taken = torch.zeros(4, 2, 5, dtype=torch.bool)
    for row, pair in enumerate(masks):
        for which in range(2):
            taken[row, which, pair[which]] = True
    found = compare_masks(log_q, taken, torch.tensor(losses), 1.5, 0.1)
    for row in range(4):
        loss, counts = reference.preference(Q, masks[row], losses[row], 1.5, 0.1)
        assert float(found.loss[row].detach()) == pytest.approx(loss, rel=1e-5) and bool(found.counts[row]) == counts
    assert found.correct.tolist() == [True, False, False, False]
    found.loss.sum().backward()
    # a step down the gradient makes the harder mask likelier
    assert (log_q.grad[0, :2] < 0).all() and (log_q.grad[0, 2:4] > 0).all() and log_q.grad[0, 4] == 0
    assert log_q.grad[1, 4] == 0 and (log_q.grad[2:] == 0).all()  # a shared token, and pairs that do not count


def test_entropy_share():
    log_q = torch.tensor([Q, [0.2] * 5, [1.0, 0, 0, 0, 0]]).log()
    found = entropy_share(log_q, torch.full((3,), 5))
    assert found.tolist() == pytest.approx([-sum(q * math.log(q) for q in Q) / math.log(5), 1.0, 0.0], abs=1e-6)
