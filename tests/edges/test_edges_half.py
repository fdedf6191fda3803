"""Half precision at its ends: the criterion's loss of extreme logits, and the loss scale of fairseq's fp16 optimizers.

``--cpu --fp16`` is refused by fairseq, so the optimizers are built on CPU tensors, and what half precision does to a
training step is done by hand: parameters, logits and gradients are rounded to it, and what it can't hold is infinite.
"""

import harness
import numpy as np
import pytest
import torch
from child_tuning_helpers import build_mode
from fairseq.logging import metrics

from fairseq_maskplugins.decoupled_mlm.losses import sum_by_kind
from fairseq_maskplugins.decoupled_mlm.rates import Rates

ROWS, LENGTH = 512, 64


class Logits(torch.nn.Module):
    """A model whose logits are its parameter, the same at every position."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(logits)

    def forward(self, src_tokens, masked_tokens=None, **unused):
        rows = self.logits.expand(*src_tokens.shape, -1)
        return (rows if masked_tokens is None else rows[masked_tokens]), {}


@pytest.fixture(scope="module")
def task_and_batch(data_bin):
    """Rows of 64 tokens with ``<s>``, 512 of them: the batch at which loss scales were seen to collapse."""
    task, cfg = harness.make_task(data_bin, "--tokens-per-sample", LENGTH)
    task.load_dataset("train")
    words = np.random.RandomState(0).zipf(1.5, (ROWS, LENGTH - 1)) % 60 + 10
    batch = task.dataset("train").collater([(i, row.astype(np.int64)) for i, row in enumerate(words)])
    return task, cfg, batch


@pytest.mark.parametrize(
    "dtype, low, high", [(torch.float16, -6e4, 6e4), (torch.float16, -6e-8, 6e-8), (torch.bfloat16, -1e33, 1e33)]
)
def test_loss_of_extreme_logits(dtype, low, high, task_and_batch):
    """One token has the highest logit, all others the lowest; the loss is in float32, and is what arithmetic says."""
    task, cfg, batch = task_and_batch
    criterion = task.build_criterion(cfg.criterion)
    size, favourite = len(task.dictionary), 12
    model = Logits(torch.full((size,), low).index_fill(0, torch.tensor([favourite]), high).to(dtype))
    sample = task.mask_batch(batch, Rates(0.8, 0.8))
    loss, count, logs = criterion(model, sample)
    gap = float(model.logits[favourite].detach().double() - model.logits[5].detach().double())
    wrong = int(((sample["target"] != 1) & (sample["target"] != favourite)).sum())
    rest = np.log1p((size - 1) * np.exp(-gap))  # what the favourite itself costs
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(wrong * (gap + rest) + (int(count) - wrong) * rest, rel=1e-4)
    loss.backward()
    assert model.logits.grad is not None
    with np.errstate(over="ignore"), metrics.aggregate() as values:
        criterion.reduce_metrics([logs])
    found = values.get_smoothed_values()
    assert np.isfinite(found["loss"]) and found["loss_masked"] == found["loss"] and found["ppl"] > 1


def test_an_infinite_loss_of_one_kind_stays_with_it():
    loss = torch.tensor([float("inf"), 2.0, 4.0])
    sums = sum_by_kind(loss, torch.tensor([9, 5, 6]), torch.tensor([4, 5, 7]), mask=9)
    assert [float(sums[f"loss_{kind}"]) for kind in ("masked", "same", "random")] == [float("inf"), 2.0, 4.0]


class Step:
    """A training step of the trainer, in half precision: ``params`` are the half-precision parameters."""

    def __init__(self, task, cfg, mode, monkeypatch, init_scale, **optimizer):
        torch.manual_seed(1)
        self.task = task
        self.model, self.criterion = task.build_model(cfg.model).train(), task.build_criterion(cfg.criterion)
        self.wide = [p for m in (self.model, self.criterion) for p in m.parameters()]
        self.params = [torch.nn.Parameter(p.detach().half()) for p in self.wide]
        self.optimizer = build_mode(mode, self.params, monkeypatch, **optimizer)
        self.optimizer.scaler.loss_scale = init_scale
        self.overflows, self.losses, self.scales = [], [], []
        plain = self.model.forward

        def forward(*args, **kwargs):
            logits, extra = plain(*args, **kwargs)
            return logits.half(), extra

        self.model.forward = forward

    def __call__(self, batch, rates, update):
        optimizer = self.optimizer
        with torch.no_grad():
            for p, half in zip(self.wide, self.params):
                p.copy_(half)
        self.model.zero_grad()
        self.criterion.zero_grad()
        optimizer.zero_grad()
        if getattr(self.criterion, "chooses_masks", False):
            sample = {**batch, "rates": rates, "update_num": update}
        else:
            sample = self.task.mask_batch(batch, rates)
        loss, size, _ = self.criterion(self.model, sample)
        optimizer.backward(loss)
        for p, half in zip(self.wide, self.params):
            half.grad = None if p.grad is None else p.grad.half()
        optimizer.multiply_grads(1 / float(size))
        self.losses.append(float(loss.detach()) / float(size))
        try:
            optimizer.clip_grad_norm(1.0)
            optimizer.step()
            self.overflows.append(False)
        except OverflowError:  # FloatingPointError, at the smallest scale, ends the test as it ends training
            optimizer.zero_grad()
            self.overflows.append(True)
        self.scales.append(optimizer.scaler.loss_scale)


SMALL = (
    "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 1 --dropout 0 "
    "--attention-dropout 0 --max-positions 66 --tokens-per-sample 64"
).split()


@pytest.mark.parametrize(
    "mode, optimizer",
    [
        ("fp16", {"name": "adam"}),
        ("fp16", {"name": "child_tuning_adam", "reserve_p": 0.5}),
        ("memory_efficient_fp16", {"name": "child_tuning_adam", "reserve_p": 0.5}),
    ],
    ids=str,
)
def test_the_loss_scale_settles_and_training_goes_on(mode, optimizer, task_and_batch, data_bin, monkeypatch):
    """512 rows of 64 tokens at 80%: the loss is a sum over 26,000 tokens, so the first gradients are infinite; the scale
    is halved until they are not, stays far above its minimum, and the loss falls."""
    task, cfg = harness.make_task(data_bin, *SMALL)
    batch = task_and_batch[2]
    step = Step(task, cfg, mode, monkeypatch, 2.0**7, **optimizer)
    for update in range(16):
        step(batch, Rates(0.8, 0.8), update)
    assert step.overflows[0] and not any(step.overflows[-8:])
    settled = step.scales[-1]
    assert settled == 2.0**7 / 2 ** sum(step.overflows)
    assert settled >= 2**-3  # a thousand times the minimum, 1e-4; 2 was seen
    assert np.isfinite(step.losses).all() and step.losses[-1] < 0.97 * step.losses[0]
    assert all(torch.isfinite(p).all() for p in step.params)


@pytest.mark.parametrize(
    "options", ["", "--mapnet-temperature 0.001 --mapnet-beta 1000 --mapnet-uniform-mix 0"], ids=["plain", "sharpest"]
)
def test_the_loss_scale_settles_with_mapnet(options, task_and_batch, data_bin, monkeypatch):
    """Also where the preference loss is as steep as its options allow."""
    extra = "--criterion mapnet --mapnet-embed-dim 8 --mapnet-layers 1 --mapnet-warmup-updates 0".split()
    task, cfg = harness.make_task(data_bin, *SMALL, *extra, *options.split())
    items = [(i, row[row > 3].numpy()) for i, row in enumerate(task_and_batch[2]["net_input"]["src_tokens"][:64])]
    task.load_dataset("train")
    batch = task.dataset("train").collater(items)
    step = Step(task, cfg, "fp16", monkeypatch, 2.0**7, name="adam")
    for update in range(35):
        step(batch, Rates(0.5, 0.5), update)
    assert step.overflows[0] and not any(step.overflows[-10:])
    assert step.scales[-1] > 1e-3 and np.isfinite(step.losses).all()  # 2 to 8, and 0.002 to 0.004, were seen
