"""Fisher values against a loop of single-example backward passes, and the selection against sorting."""

import numpy as np
import pytest
import torch

from fairseq_maskplugins.child_tuning import per_example
from fairseq_maskplugins.child_tuning.fisher import Fisher, covered_names
from fairseq_maskplugins.child_tuning.select import count_kept, select_top
from fairseq_maskplugins.child_tuning.show import describe
from fairseq_maskplugins.errors import UsageError


class Classifier(torch.nn.Module):
    """Layers of every kind: embeddings, norms, layers that see ``[T, B, C]``, tied and unused weights."""

    def __init__(self, tied=False):
        super().__init__()
        torch.manual_seed(1)
        self.embed = torch.nn.Embedding(11, 6, padding_idx=1)
        self.norm = torch.nn.LayerNorm(6)
        self.inner = torch.nn.Linear(6, 5, bias=False)
        self.twice = torch.nn.Linear(5, 5)
        self.free = torch.nn.Parameter(torch.randn(5))
        self.head = torch.nn.Linear(5, 3)
        self.back = torch.nn.Linear(5, 6)
        self.unused = torch.nn.Linear(2, 2)
        self.tied = tied

    def forward(self, tokens):
        keep = tokens.ne(1).float()[:, :, None]
        x = torch.tanh(self.inner(self.norm(self.embed(tokens)).transpose(0, 1))).transpose(0, 1)
        x = self.twice(torch.tanh(self.twice(x))) * self.free
        pooled = (x * keep).sum(1) / keep.sum(1)
        out = self.head(pooled)
        return torch.cat([out, torch.nn.functional.linear(self.back(pooled), self.embed.weight)], 1) if self.tied else out


def toy(tied=False, count=12):
    generator = torch.Generator().manual_seed(4)
    lengths = [3, 5, 2, 4] * (count // 4)
    rows = [torch.randint(2, 11, (n,), generator=generator) for n in lengths]
    labels = torch.randint(0, 3, (count,), generator=generator)
    model = Classifier(tied)

    def batch(indices):
        width = max(lengths[i] for i in indices)
        tokens = torch.stack([torch.cat([rows[i], rows[i].new_ones(width - lengths[i])]) for i in indices])
        return tokens, labels[list(indices)]

    def loss_of(sample):
        return torch.nn.functional.cross_entropy(model(sample[0]), sample[1], reduction="sum")

    return model, batch, loss_of


def reference_fisher(model, batch, loss_of, count):
    """The definition: one backward pass for each example, squares averaged."""
    total = {}
    for index in range(count):
        model.zero_grad(set_to_none=True)
        loss_of(batch([index])).backward()
        for name, p in model.named_parameters():
            if p.grad is not None:
                total[name] = total.get(name, 0) + p.grad.double() ** 2 / count
    model.zero_grad(set_to_none=True)
    return total


@pytest.mark.parametrize("tied, at_once", [(False, 1 << 22), (True, 1 << 22), (False, 0)])
def test_vectorised_values_are_those_of_single_examples(tied, at_once, monkeypatch):
    """In layers of full size the gradients of all examples don't fit at once, and are made one by one."""
    monkeypatch.setattr(per_example, "AT_ONCE", at_once)
    model, batch, loss_of = toy(tied)
    expected = reference_fisher(model, batch, loss_of, 12)
    fisher = Fisher(model, dict(model.named_parameters()))
    for start in range(0, 12, 4):
        indices = list(range(start, start + 4))
        fisher.add(loss_of, batch(indices), [lambda i=i: batch([i]) for i in indices])
    found = fisher.result()
    assert found.keys() == expected.keys() and "unused.weight" not in found
    for name in expected:
        torch.testing.assert_close(found[name].double(), expected[name], rtol=1e-3, atol=1e-9)
    # a layer called twice and a free parameter can't be vectorised; a tied weight can't either
    loop = {"twice.weight", "twice.bias", "free"} | ({"embed.weight"} if tied else set())
    assert set(fisher.loop) == loop
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_a_mean_over_the_batch_is_noticed():
    """A loss that is not a sum over examples disagrees with single examples: nothing is vectorised."""
    model, batch, loss_of = toy()
    fisher = Fisher(model, dict(model.named_parameters()))
    mean = lambda sample: loss_of(sample) / len(sample[1])  # noqa: E731
    fisher.add(mean, batch([0, 1, 2, 3]), [lambda i=i: batch([i]) for i in range(4)])
    assert not fisher.layouts and len(fisher.loop) == len(fisher.result())


def reference_top(values, reserve_p):
    flat = np.concatenate([v.reshape(-1) for v in values])
    order = sorted(range(len(flat)), key=lambda i: (-flat[i], i))
    chosen = np.zeros(len(flat), dtype=bool)
    chosen[order[: count_kept(len(flat), reserve_p)]] = True
    return np.split(chosen, np.cumsum([v.size for v in values])[:-1])


@pytest.mark.parametrize("reserve_p", [1e-9, 0.01, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["dense", "ties", "zeros", "tiny"])
def test_selection_against_sorting(kind, reserve_p):
    rng = np.random.default_rng(3)
    values = [rng.random(shape).astype(np.float32) for shape in ((40, 30), (1,), (7, 11))]
    if kind == "ties":
        values = [np.round(v * 5).astype(np.float32) for v in values]
    elif kind == "zeros":  # 80% are exactly 0, some of them -0
        values = [np.where(rng.random(v.shape) < 0.8, np.float32(-0.0) * v, v) for v in values]
    elif kind == "tiny":  # down to the smallest numbers there are
        values = [(v * np.float32(1e-41)).astype(np.float32) for v in values]
    for found, expected, value in zip(select_top(values, reserve_p), reference_top(values, reserve_p), values):
        assert found.shape == value.shape
        assert (found.reshape(-1) == expected).all()


def test_selection_beyond_what_quantile_takes():
    values = [np.random.default_rng(1).random(9_000_000, dtype=np.float32) for _ in range(2)]
    selected = select_top(values, 0.3)
    assert sum(int(x.sum()) for x in selected) == count_kept(18_000_000, 0.3)
    threshold = min(v[s].min() for v, s in zip(values, selected))
    assert all((v[~s] <= threshold).all() for v, s in zip(values, selected))


def test_selection_refuses_what_is_no_fisher_value():
    for bad in (np.nan, np.inf, -1.0):
        with pytest.raises(UsageError, match="those of b are not"):
            select_top([np.zeros(2, np.float32), np.array([bad], np.float32)], 0.5, ["a", "b"])


def test_cover():
    names = ["embed.weight", "layers.0.fc1.weight", "head.weight"]
    assert covered_names(names, "all") == names
    assert covered_names(names, "layers") == names[1:2]
    assert covered_names(names, "^(embed|head)") == [names[0], names[2]]
    with pytest.raises(UsageError, match="--cover must be all, layers or a regular expression"):
        covered_names(names, "(")


def test_kinds_of_weights():
    layer = "encoder.sentence_encoder.layers.2."
    assert describe(layer + "self_attn.k_proj.weight") == ("layer 2", "attention")
    assert describe(layer + "self_attn_layer_norm.weight") == ("layer 2", "layer norm")
    assert describe(layer + "fc1.weight") == ("layer 2", "feed-forward")
    assert describe("encoder.sentence_encoder.layernorm_embedding.bias") == ("outside", "layer norm")
    assert describe("encoder.sentence_encoder.embed_positions.weight") == ("outside", "embedding")
