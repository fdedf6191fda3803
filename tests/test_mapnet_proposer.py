"""MAP-Net's proposer, its learning rate of its own, and the kinds of tokens it is described by."""

import numpy as np
import pytest
import torch

from fairseq_maskplugins.mapnet.kinds import frequency_deciles, sum_by_group
from fairseq_maskplugins.mapnet.proposer import Proposer


def test_proposer_starts_uniform_and_ignores_padding():
    torch.manual_seed(1)
    proposer = Proposer(30, 1, 2, 16, 2)
    tokens = torch.tensor([[0, 5, 6, 7, 2, 1, 1], [1] * 7])
    assert (proposer(tokens) == 0).all()
    torch.nn.init.normal_(proposer.score.weight)
    padded, bare = proposer(tokens)[0], proposer(tokens[:1, :5])[0]
    assert torch.allclose(padded[:5], bare, atol=1e-6) and torch.isfinite(proposer(tokens)).all()
    assert len(set(bare.tolist())) == 5


def test_proposer_in_half_precision():
    """As under --bf16: a finite score in float32, and gradients for everything."""
    torch.manual_seed(1)
    proposer = Proposer(30, 1, 2, 16, 2, scale=100.0)
    torch.nn.init.normal_(proposer.score.weight, 0, 0.01)
    tokens = torch.tensor([[0, 5, 6, 7, 2, 1, 1], [1] * 7])
    expected = proposer(tokens)[0, :5]
    scores = proposer.bfloat16()(tokens)
    assert scores.dtype == torch.float32 and torch.isfinite(scores).all()
    assert torch.allclose(scores[0, :5], expected, atol=0.05, rtol=0.05)
    scores.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in proposer.parameters())


def test_shared_embeddings_get_no_gradient():
    torch.manual_seed(1)
    proposer = Proposer(30, 1, 1, 16, 2, shared_width=24)
    torch.nn.init.normal_(proposer.score.weight)
    embedding = torch.randn(30, 24, requires_grad=True)
    proposer(torch.tensor([[0, 5, 6, 2]]), embedding).sum().backward()
    assert embedding.grad is None and not hasattr(proposer, "embed")
    assert proposer.adapt.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("scale", [0.25, 8.0])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_scale_is_the_learning_rate(scale, optimizer):
    """Stored parameters with scale s move the proposer as s times the learning rate, and have the same gradients, which
    are clipped together with the model's: exactly so for a power of two."""

    def train(scale, lr):
        torch.manual_seed(1)
        proposer = Proposer(30, 1, 1, 16, 2, scale=scale)
        parameters = list(proposer.parameters())
        step = torch.optim.Adam(parameters, lr, eps=1e-3) if optimizer == "adam" else torch.optim.SGD(parameters, lr)
        tokens = torch.tensor([[0, 5, 6, 7, 2], [0, 8, 5, 2, 1]])
        norms = []
        for _ in range(5):
            step.zero_grad()
            (proposer(tokens) * torch.tensor([1.0, -1.0, 2.0, 3.0, 0.5])).sum().backward()
            norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, 1e9)))
            step.step()
        return proposer(tokens), {name: scale * p.detach() for name, p in proposer.named_parameters()}, norms

    (scores, weights, norms), (expected, expected_weights, expected_norms) = (train(scale, 0.01), train(1.0, 0.01 * scale))
    for name, weight in weights.items():
        assert torch.allclose(weight, expected_weights[name], rtol=1e-4, atol=1e-6), name
    assert torch.allclose(scores, expected, rtol=1e-3, atol=1e-4)
    assert norms == pytest.approx(expected_norms, rel=1e-4)
    assert not torch.allclose(scores, train(1.0, 0.01)[0], rtol=1e-1)


def test_frequency_deciles_split_the_text():
    counts = [9, 9, 9, 9] + [500] + [100] * 3 + [50] * 4  # 4 specials; 1000 occurrences
    maskable = np.array([False] * 4 + [True] * 8)
    deciles = frequency_deciles(counts, maskable)
    assert deciles.tolist() == [0] * 4 + [3] + [6, 7, 8] + [9, 9, 10, 10]
    assert frequency_deciles([1] * 12, maskable) is None


def test_sum_by_group():
    found = sum_by_group(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 1, 0]), ["a", "b"])
    assert {name: float(value) for name, value in found.items()} == {"q_a": 5.0, "q_b": 2.0, "n_q_a": 2, "n_q_b": 1}
