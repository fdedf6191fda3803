"""The criterion: logits at predicted positions only, losses by kind, rates in the paper's definition, summable."""

import math

import harness
import pytest
import torch
from fairseq.logging import metrics

from fairseq_maskplugins.decoupled_mlm.losses import sum_by_kind


@pytest.fixture(scope="module")
def parts(data_bin):
    options = "--random-token-prob 0.2 --leave-unmasked-prob 0.2 --corruption-rate 0.3 --prediction-rate 0.7".split()
    task, cfg = harness.make_task(data_bin, *options, "--dropout", 0, "--attention-dropout", 0, "--batch-size", 64)
    torch.manual_seed(0)
    return task, task.build_model(cfg.model), task.build_criterion(cfg.criterion), harness.batches(task, cfg)[0]


def forward(parts, rates=None):
    task, model, criterion, batch = parts
    sample = task.mask_batch(batch, rates or task.schedule.start)
    return sample, criterion(model, sample)


def test_loss_equals_plain_cross_entropy(parts):
    sample, (loss, sample_size, logs) = forward(parts)
    with torch.no_grad():
        logits = parts[1](sample["net_input"]["src_tokens"])[0]  # at every position
    total = count = 0.0
    kinds = {"masked": [], "random": [], "same": []}
    for row in range(len(logits)):
        for position, target in enumerate(sample["target"][row].tolist()):
            if target == 1:
                continue
            nll = -torch.log_softmax(logits[row, position], dim=-1)[target].item()
            source = sample["net_input"]["src_tokens"][row, position].item()
            kinds["masked" if source == parts[0].mask_idx else "same" if source == target else "random"].append(nll)
            total, count = total + nll, count + 1
    assert sample_size == count and loss.item() == pytest.approx(total, rel=1e-5)
    for kind, losses in kinds.items():
        assert len(losses) > 20 and logs[f"n_{kind}"] == len(losses)
        assert logs[f"loss_{kind}"].item() == pytest.approx(sum(losses), rel=1e-5)


def test_no_gradient_where_nothing_is_predicted(parts):
    """Stock RoBERTa gives logits at the chosen positions alone; their number is the number of targets."""
    task, model, criterion, batch = parts
    sample = task.mask_batch(batch, task.schedule.start)
    chosen = []
    handle = model.encoder.lm_head.register_forward_hook(lambda module, inputs, output: chosen.append(output))
    try:
        criterion(model, sample)
    finally:
        handle.remove()
    assert chosen[0].shape[0] == (sample["target"] != 1).sum()


def test_logged_rates_are_the_papers(data_bin):
    """80-10-10 at 40% logs 36% and 36% (a random token that is the token itself counts as same: 1 in ~80 words here)."""
    options = "--mask-prob 0.4 --random-token-prob 0.1 --leave-unmasked-prob 0.1".split()
    task, cfg = harness.make_task(data_bin, *options)
    model, criterion = task.build_model(cfg.model), task.build_criterion(cfg.criterion)
    logs = [criterion(model, task.mask_batch(batch, task.schedule.start))[2] for batch in harness.batches(task, cfg)]
    assert reduce(criterion, logs)["corruption_rate"] == pytest.approx(0.36, abs=0.01)
    assert reduce(criterion, logs)["prediction_rate"] == pytest.approx(0.36, abs=0.01)


def reduce(criterion, logs):
    with metrics.aggregate() as values:
        criterion.reduce_metrics(logs)
    return values.get_smoothed_values()


def test_prediction_rate_counts_each_row_once(parts):
    _, (_, _, logs) = forward(parts)
    found = reduce(parts[2], [logs])
    # corruption 0.3 and prediction 0.7 in three copies; a fifth of the units stays the same
    assert found["corruption_rate"] == pytest.approx(0.3 * 0.8, abs=0.02)
    assert found["prediction_rate"] == pytest.approx(0.7 * 0.8, abs=0.02)


def test_logs_add_up_over_ranks(parts):
    task, model, criterion, batch = parts
    logs = [criterion(model, task.mask_batch(batch, task.schedule.at(0)))[2] for _ in range(2)]
    assert criterion.logging_outputs_can_be_summed()
    summed = {key: logs[0][key] + logs[1][key] for key in logs[0]}
    apart, together = reduce(criterion, logs), reduce(criterion, [summed])
    assert apart == together and math.isfinite(apart["loss"])


def test_nothing_predicted(parts):
    task, model, criterion, batch = parts
    sample = dict(task.mask_batch(batch, task.schedule.start))
    sample["target"] = torch.full_like(sample["target"], 1)
    model.zero_grad()
    loss, sample_size, logs = criterion(model, sample)
    loss.backward()
    assert loss.item() == 0.0 and sample_size == 0
    gradients = harness.trained({name: p.grad for name, p in model.named_parameters()}).values()
    assert all(g is not None and (g == 0).all() for g in gradients)  # every rank has a gradient for everything
    assert reduce(criterion, [logs])["loss"] == 0.0


def test_takes_samples_of_stock_masked_lm(data_bin):
    task, cfg = harness.make_task(data_bin, "--task", "masked_lm")
    task.load_dataset("train")
    model, criterion = task.build_model(cfg.model), task.build_criterion(cfg.criterion)
    sample = task.dataset("train").collater([task.dataset("train")[i] for i in range(4)])
    found = reduce(criterion, [criterion(model, sample)[2]])
    assert math.isfinite(found["loss"]) and "corruption_rate" not in found


def test_sum_by_kind():
    loss = torch.tensor([1.0, 2.0, 4.0, 8.0])
    source, target = torch.tensor([9, 9, 5, 6]), torch.tensor([4, 5, 5, 7])
    sums = sum_by_kind(loss, source, target, mask=9)
    assert {k: float(v) for k, v in sums.items()} == {
        "loss_masked": 3.0, "loss_same": 4.0, "loss_random": 8.0, "n_masked": 2, "n_same": 1, "n_random": 1
    }  # fmt: skip
