"""Criterion ``mapnet`` in this process: one call of the model, no gradient leaks, metrics that add up, refusals."""

import math

import harness
import pytest
import torch
from fairseq.logging import metrics

from fairseq_maskplugins.decoupled_mlm.sample import PLAN_KEY

MAPNET = "--criterion mapnet --mapnet-embed-dim 16 --mapnet-warmup-updates 0 --dropout 0 --attention-dropout 0".split()
RATES = "--corruption-rate 0.3 --prediction-rate 0.3".split()


def build(data_bin, *options):
    task, cfg = harness.make_task(data_bin, *MAPNET, *options)
    torch.manual_seed(0)
    model, criterion = task.build_model(cfg.model), task.build_criterion(cfg.criterion)
    torch.nn.init.normal_(criterion.proposer.score.weight, 0, 1.0)  # else the proposal is uniform
    return task, model, criterion, harness.batches(task, cfg)[0]


class Spy:
    """Calls the criterion as the task's training step does, and notes the rows of each call of the model."""

    def __init__(self, task, model, criterion):
        self.task, self.model, self.criterion, self.calls = task, model, criterion, []

        def forward(src_tokens, **kwargs):
            self.calls.append(src_tokens)
            return type(model).forward(model, src_tokens, **kwargs)

        model.forward = forward

    def __call__(self, batch, update=0):
        self.calls.clear()
        return self.criterion(self.model, {**batch, "rates": self.task.schedule.at(update), "update_num": update})


def gradients(module):
    return {name: None if p.grad is None else p.grad.clone() for name, p in module.named_parameters()}


@pytest.fixture(scope="module")
def parts(data_bin):
    return build(data_bin, *RATES)


def test_one_call_of_the_model_for_both_masks(parts):
    task, model, criterion, batch = parts
    spy = Spy(task, model, criterion)
    _, sample_size, logs = spy(batch)
    assert len(spy.calls) == 1
    source = spy.calls[0].view(len(batch["id"]), 2, -1)
    counts = (source == task.mask_idx).sum(-1)
    assert torch.equal(counts[:, 0], counts[:, 1]) and counts.sum() == sample_size  # two masks of equal size
    assert not torch.equal(source[:, 0], source[:, 1])
    assert logs["nsentences"] == 2 * batch["nsentences"]


def test_another_learning_rate_keeps_the_proposer(data_bin, parts):
    """Parameters are stored divided by --mapnet-lr-scale; a run that is resumed with another one means the same."""
    _, model, criterion, batch = parts
    tokens = batch["net_input"]["src_tokens"]
    maskable = tokens > 3
    expected = criterion.propose(model, tokens, maskable)
    other = build(data_bin, *RATES, "--mapnet-lr-scale", 30)[2]
    other.load_state_dict(criterion.state_dict(), strict=True)
    assert torch.allclose(other.propose(model, tokens, maskable), expected, atol=1e-4)
    again = build(data_bin, *RATES, "--mapnet-lr-scale", 30)[2]
    again.load_state_dict(other.state_dict())
    assert all(torch.equal(p, q) for p, q in zip(again.parameters(), other.parameters()))


def test_no_gradient_leaks(parts):
    """The model's gradient does not depend on beta, the proposer's not on the weights; each alone is what both give."""
    task, model, criterion, batch = parts
    spy = Spy(task, model, criterion)

    def run(**settings):
        kept = {name: getattr(criterion.cfg, name) for name in settings}
        for name, value in settings.items():
            setattr(criterion.cfg, name, value)
        model.zero_grad()
        criterion.zero_grad()
        spy(batch)[0].backward()
        for name, value in kept.items():
            setattr(criterion.cfg, name, value)
        return gradients(model), gradients(criterion)

    base, other_beta, no_weights = run(), run(mapnet_beta=7.0), run(mapnet_weights="none")
    trained = harness.trained(base[0])
    assert all(trained[name] is not None for name in trained) and all(g is not None for g in base[1].values())
    assert all(torch.equal(trained[name], other_beta[0][name]) for name in trained)
    assert any(not torch.equal(base[1][name], other_beta[1][name]) for name in base[1])
    assert all(torch.equal(base[1][name], no_weights[1][name]) for name in base[1])
    assert any(not torch.equal(trained[name], no_weights[0][name]) for name in trained)


def test_weighted_loss_equals_a_loop(parts):
    """The loss, from the model's logits and the weights of the pure part, position by position."""
    task, model, criterion, batch = parts
    from fairseq_maskplugins.mapnet.proposal import log_inclusion, weigh

    sample = {**batch, "rates": task.schedule.start, "update_num": 3}
    tokens, plan = batch["net_input"]["src_tokens"], batch[PLAN_KEY]
    with torch.no_grad():
        log_q = criterion.propose(model, tokens, plan["depth"] <= plan["count"][:, None])
        masked, pair = criterion.draw(sample, log_q)
        logits = model(masked["net_input"]["src_tokens"])[0]
        taken = (masked["target"] != 1).view(len(tokens), 2, -1)
        weight = weigh(log_inclusion(log_q, pair.perturbed, taken), taken, plan["count"], 5.0).weight
        _, _, logs = criterion(model, sample)
    total = 0.0
    for line in range(len(logits)):
        for t in (masked["target"][line] != 1).nonzero()[:, 0].tolist():
            nll = -torch.log_softmax(logits[line, t], -1)[masked["target"][line, t]]
            total += float(nll * weight[line // 2, line % 2, t])
    assert float(logs["loss"]) == pytest.approx(total, rel=1e-4)
    # every mask is the top of its ranking
    for row in range(len(tokens)):
        for m in range(2):
            inside = pair.perturbed[row, m][taken[row, m]]
            outside = pair.perturbed[row, m][~taken[row, m]]
            assert len(inside) and inside.min() > outside.max()


@pytest.mark.parametrize("rates", ["--corruption-rate 0.2 --prediction-rate 0.5", "--corruption-rate 0.5 --prediction-rate 0.2"])
def test_separate_rates(data_bin, rates):
    """Above: copies with disjoint predicted sets; below: a part of what is corrupted. The logs say what was asked."""
    task, model, criterion, batch = build(data_bin, *rates.split())
    loss, _, logs = Spy(task, model, criterion)(batch)
    loss.backward()
    with metrics.aggregate() as values:
        criterion.reduce_metrics([logs])
    found = values.get_smoothed_values()
    asked = task.schedule.start
    bound = 1 / (batch[PLAN_KEY]["count"].mean().item() * math.sqrt(len(batch["id"])))  # rounding, per row
    assert found["corruption_rate"] == pytest.approx(asked.corruption, abs=5 * bound)
    assert found["prediction_rate"] == pytest.approx(asked.prediction, abs=5 * bound)
    assert logs["n_weights"] == logs["sample_size"]


def test_warmup_masks_are_uniform_and_weigh_one(data_bin):
    task, model, criterion, batch = build(data_bin, *RATES, "--mapnet-warmup-updates", 5)
    spy = Spy(task, model, criterion)
    for update, uniform in ((4, True), (5, False)):
        loss, _, logs = spy(batch, update)
        assert torch.isclose(logs["loss"], logs["unweighted_loss"]) == uniform
        assert (float(logs["effective"]) == pytest.approx(float(logs["n_weights"]))) == uniform
        criterion.zero_grad()
        loss.backward()
        assert sum(float(g.abs().sum()) for g in gradients(criterion).values()) > 0  # it learns from the first update


def test_nothing_to_predict(parts):
    """A batch without maskable tokens: zero gradients for everything, so that no rank waits for another."""
    task, model, criterion, batch = parts
    batch = {**batch, PLAN_KEY: {**batch[PLAN_KEY], "count": torch.zeros_like(batch[PLAN_KEY]["count"])}}
    batch[PLAN_KEY]["depth"] = torch.full_like(batch[PLAN_KEY]["depth"], math.inf)
    model.zero_grad()
    criterion.zero_grad()
    loss, sample_size, logs = Spy(task, model, criterion)(batch)
    loss.backward()
    assert loss.item() == 0 and sample_size == 0
    for module in (model, criterion):
        found = harness.trained(gradients(module)).values()
        assert all(g is not None and (g == 0).all() for g in found)
    with metrics.aggregate() as values:
        criterion.reduce_metrics([logs])
    assert values.get_smoothed_values()["loss"] == 0


def test_logs_add_up_over_ranks(parts, corpus):
    task, model, criterion, batch = parts
    spy = Spy(task, model, criterion)
    logs = [spy(batch, update)[2] for update in (0, 1)]
    assert criterion.logging_outputs_can_be_summed()
    summed = {key: logs[0][key] + logs[1][key] for key in logs[0]}

    def reduce(logs):
        with metrics.aggregate() as values:
            criterion.reduce_metrics(logs)
        return values.get_smoothed_values()

    apart, together = reduce(logs), reduce([summed])
    assert apart == together
    assert 0 < apart["proposal_entropy"] < 1 and 0 <= apart["preference_accuracy"] <= 1
    assert 0 < apart["effective_sample_size"] < 1 and {"proposed_decile_1", "proposed_decile_10"} <= apart.keys()
    assert "proposed_begin" not in apart  # nothing says where words begin


def test_kinds_of_tokens_average_to_one(data_bin, corpus):
    bpe = ["--bpe", "sentencepiece", "--sentencepiece-model", corpus / "sp.model"]
    task, model, criterion, batch = build(data_bin, *RATES, *bpe)
    logs = Spy(task, model, criterion)(batch)[2]
    for names in (("begin", "continuation"), tuple(f"decile_{i}" for i in range(1, 11))):
        total = sum(float(logs[f"q_{name}"]) for name in names)
        assert total == pytest.approx(sum(float(logs[f"n_q_{name}"]) for name in names), rel=1e-5)


def test_validation_is_decoupled_mlms(data_bin):
    task, model, criterion, batch = build(data_bin, *RATES)
    plain, cfg = harness.make_task(data_bin, *RATES)
    reference = plain.build_criterion(cfg.criterion)
    found, expected = (t.valid_step(batch, model, c) for t, c in ((task, criterion), (plain, reference)))
    assert found[0] == expected[0] and found[2].keys() == expected[2].keys()


def test_shared_embeddings_are_not_trained_by_the_proposer(data_bin):
    task, model, criterion, batch = build(data_bin, *RATES, "--mapnet-share-embeddings")
    tokens = batch["net_input"]["src_tokens"]
    criterion.propose(model, tokens, tokens > 3)[:, 1].sum().backward()
    assert all(p.grad is None for p in model.parameters()) and criterion.proposer.adapt.weight.grad is not None
    assert sum(p.numel() for p in criterion.parameters()) < sum(p.numel() for p in build(data_bin, *RATES)[2].parameters())


def test_max_tokens_counts_both_masks(data_bin):
    task, _, _, _ = build(data_bin, "--corruption-rate", 0.2, "--prediction-rate", 0.5)
    dataset = task.dataset("train")
    assert dataset.num_tokens(0) == 2 * 3 * dataset.size(0)


@pytest.mark.parametrize(
    "options, text",
    [
        ("--mapnet-temperature 0", r"--mapnet-temperature must lie in \[0.001, 1000\], got 0"),
        ("--mapnet-uniform-mix 1.5", r"--mapnet-uniform-mix must lie in \[0, 1\], got 1.5"),
        ("--mapnet-margin nan", "--mapnet-margin must be 0 or more, got nan"),
        ("--max-importance-weight 0.5", "--max-importance-weight must be 1 or more, got 0.5"),
        ("--mapnet-warmup-updates -1", "--mapnet-warmup-updates must be 0 or more, got -1"),
        ("--mapnet-lr-scale 0", r"--mapnet-lr-scale must lie in \[0.001, 1000\], got 0"),
        ("--mapnet-layers -1", "--mapnet-layers must lie in \\[0, 1000\\], got -1"),
        ("--mapnet-attention-heads 3", "--mapnet-attention-heads must divide --mapnet-embed-dim, 16, got 3"),
        ("--mapnet-weights some", "--mapnet-weights must be one of inclusion, none, got 'some'"),
        ("--task masked_lm", "--criterion mapnet needs --task decoupled_mlm"),
    ],
)
def test_refusals(data_bin, options, text):
    task, cfg = harness.make_task(data_bin, *MAPNET, *options.split())
    with pytest.raises(ValueError, match=text):
        task.build_criterion(cfg.criterion)


@pytest.mark.parametrize("arch", ["transformer_tiny", "fconv_lm"])
def test_architectures_that_predict_no_masks_are_refused(data_bin, arch):
    with pytest.raises(ValueError, match=f"--arch must be a masked language model .*: {arch} does not"):
        task, cfg = harness.make_task(data_bin, "--arch", arch, base=[*harness.MLM, "--optimizer", "adam"])
        task.build_model(cfg.model)
