"""Embedding correction and the variance of gradients at the ends of their scales."""

import pytest
import torch

from fairseq_maskplugins.correct_embeddings.correct import ReplacementRates as Rates
from fairseq_maskplugins.correct_embeddings.correct import correct
from fairseq_maskplugins.variance.moments import decompose

EVERY = torch.ones(50, dtype=torch.bool)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_everything_was_masked(dtype):
    """With m = 1 and <mask> alone no word was ever seen: every row becomes that of <mask>, to the bit."""
    weight = torch.randn(50, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert torch.equal(correct(weight, 49, Rates(1.0), EVERY), weight[49].expand(50, -1))
    assert torch.equal(correct(weight, 49, Rates(1.0, 0.0, 1.0), EVERY), weight)  # all left the same
    assert torch.equal(correct(weight, 49, Rates(0.0, 0.5, 0.5), EVERY), weight)
    mean = weight.double().mean(0).to(torch.float32).to(dtype)
    assert torch.equal(correct(weight, 49, Rates(1.0, 1.0), EVERY), mean.expand(50, -1))


@pytest.mark.parametrize("shares", [Rates(1.0), Rates(1.0, 1.0), Rates(1.0, 0.5, 0.5), Rates(0.5, 1 / 3, 2 / 3)])
def test_weights_at_the_limit_of_half_precision(shares):
    """Sums of 50 rows of 65504 are far beyond it; means of them are not."""
    limit = torch.finfo(torch.float16).max
    same = torch.full((50, 8), limit, dtype=torch.float16)
    assert torch.equal(correct(same, 49, shares, EVERY), same)
    mixed = same * (torch.arange(50) % 2 * 2 - 1)[:, None].half()
    found = correct(mixed, 49, shares, EVERY)
    assert torch.isfinite(found).all() and found.abs().max() <= limit
    tiny = torch.full((50, 8), 6e-8, dtype=torch.float16)
    assert torch.equal(correct(tiny, 49, shares, EVERY), tiny)


@pytest.mark.parametrize("size", [1.0, 1e-20, 3.3e8])
@pytest.mark.parametrize("masks", [2, 3, 7])
def test_a_constant_gradient_has_no_variance(size, masks):
    """Not a trace of rounding, however large the gradient is, and never less than zero."""
    gradient = size * torch.rand(1000, generator=torch.Generator().manual_seed(1))
    found = decompose(lambda row, mask: (gradient, 2.0), range(12), masks, 2)
    for term in ("data", "mask", "total"):
        assert found[term] == (0.0, 0.0)
    assert found["loss"].value == pytest.approx(2.0)


def test_a_small_variance_beside_a_large_mean():
    """Gradients of 1e4 that differ by 1e-2: the terms are found, though their squares differ in the 13th digit."""
    generator = torch.Generator().manual_seed(2)
    rows = [1e-2 * torch.randn(64, generator=generator, dtype=torch.float64) for _ in range(400)]
    noise = {}

    def gradient(row, mask):
        key = (row, mask)
        if key not in noise:
            noise[key] = 2e-2 * torch.randn(64, generator=generator, dtype=torch.float64)
        return (1e4 + rows[row] + noise[key]).float(), 1.0

    found = decompose(gradient, range(400), 3, 10)
    for term, expected in (("data", 64 * 1e-4), ("mask", 64 * 4e-4), ("total", 64 * 5e-4)):
        assert abs(found[term].value - expected) < 2 * found[term].error, term
        assert found[term].error < 0.2 * 64 * 4e-4
