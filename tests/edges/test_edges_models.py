"""The criterion with every architecture, where rows are empty, or single tokens, or nothing or all of them is masked."""

import harness
import numpy as np
import pytest
import torch
from fairseq.logging import metrics

from fairseq_maskplugins.decoupled_mlm.rates import Rates
from fairseq_maskplugins.drop_token.keep import draw_dropped

EOS, UNK = 2, 3
STILL = "--dropout 0 --attention-dropout 0 --activation-dropout 0".split()
ARCHITECTURES = {
    "roberta": "--arch roberta_base",
    "droptoken 0": "--arch droptoken_roberta_base --drop-token-prob 0",
    "droptoken near 0": "--arch droptoken_roberta_base --drop-token-prob 1e-9",
    "droptoken near 1": f"--arch droptoken_roberta_base --drop-token-prob {1 - 1e-9!r}",
    "droptoken 1": "--arch droptoken_roberta_base --drop-token-prob 1",
    "mae": "--arch mae_roberta_base --decoder-layers 1",
    "mapnet": "--criterion mapnet --mapnet-embed-dim 16 --mapnet-warmup-updates 0 --mapnet-layers 1",
    "mapnet cold": "--criterion mapnet --mapnet-embed-dim 16 --mapnet-warmup-updates 0 --mapnet-temperature 0.001 "
    "--mapnet-uniform-mix 0 --max-importance-weight inf",
    "mapnet hot": "--criterion mapnet --mapnet-embed-dim 16 --mapnet-warmup-updates 0 --mapnet-temperature 1000 "
    "--mapnet-beta 1000",
}
RATES = [Rates(r, r) for r in (1e-12, 1e-4, 1 - 1e-9, 1.0)] + [Rates(1 / 16, 1.0), Rates(1.0, 1e-12), Rates(0.3, 0.3)]


def word(n, seed=0):
    return np.random.RandomState(seed).randint(10, 60, n).tolist()


# without <s>, which comes before each
BATCHES = {
    "no words": [[EOS], [UNK] * 5 + [EOS], [EOS, EOS]],
    "one row of one token": [word(1)],
    "rows of 0, 1 and 2 tokens": [[EOS], [*word(1), EOS], [*word(2), EOS]],
    "a short row and a long one": [[*word(1), EOS], [*word(40), EOS]],
    "<s> alone": [[]],
}


@pytest.fixture(scope="module")
def built(data_bin):
    """Task, model and criterion of each architecture, made once."""
    made = {}

    def get(name):
        if name not in made:
            task, cfg = harness.make_task(data_bin, *STILL, *ARCHITECTURES[name].split(), "--random-token-prob", 0.1)
            torch.manual_seed(0)
            model, criterion = task.build_model(cfg.model).train(), task.build_criterion(cfg.criterion)
            if hasattr(criterion, "proposer"):  # else the proposal is uniform
                torch.nn.init.normal_(criterion.proposer.score.weight, 0, 3.0)
            task.load_dataset("valid")
            made[name] = task, model, criterion
        return made[name]

    return get


def collate(task, rows):
    return task.dataset("valid").collater([(i, np.array(row, dtype=np.int64)) for i, row in enumerate(rows)])


def run(parts, batch, rates, update=1):
    """As the task's training step does it; the loss, the sample size and the logs, with gradients left behind."""
    task, model, criterion = parts
    model.zero_grad()
    criterion.zero_grad()
    model.set_num_updates(update)
    if getattr(criterion, "chooses_masks", False):
        sample = {**batch, "rates": rates, "update_num": update}
    else:
        sample = task.mask_batch(batch, rates)
    loss, size, logs = criterion(model, sample)
    loss.backward()
    return loss.detach(), int(size), logs


@pytest.mark.parametrize("rates", RATES, ids=str)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_losses_and_gradients_are_finite_and_counts_are_right(name, rates, built):
    parts = built(name)
    copies = 2 if "mapnet" in name else 1
    for rows in BATCHES.values():
        batch = collate(parts[0], rows)
        n = [sum(token > UNK for token in row) for row in rows]
        assert batch["mask_plan"]["count"].tolist() == n
        loss, size, logs = run(parts, batch, rates)
        assert torch.isfinite(loss) and loss.dtype == torch.float32
        assert abs(size - copies * rates.prediction * sum(n)) < copies * max(1, sum(x > 0 for x in n))
        if rates.prediction == 1.0:
            assert size == copies * sum(n)
        assert size > 0 or loss == 0
        for module in parts[1:]:
            trained = {k: p for k, p in module.named_parameters() if k in harness.trained(dict(module.named_parameters()))}
            for parameter_name, p in trained.items():
                assert p.grad is not None, parameter_name  # else a rank would wait for another
                assert torch.isfinite(p.grad).all(), parameter_name
                assert size > 0 or (p.grad == 0).all(), parameter_name
        with metrics.aggregate() as values:
            parts[2].reduce_metrics([logs])
        assert all(np.isfinite(float(value)) for value in values.get_smoothed_values().values())


def test_no_dropped_tokens_is_roberta_and_all_dropped_is_what_is_left(built):
    """A share of 1e-9 drops nothing of short rows, so the loss is RoBERTa's to the bit; 1 - 1e-9 drops what 1 does."""
    losses = {}
    for name in ("roberta", "droptoken 0", "droptoken near 0", "droptoken near 1", "droptoken 1"):
        parts = built(name)
        batch = collate(parts[0], [word(40), word(7, 1)])
        losses[name] = run(parts, batch, Rates(0.3, 0.3))[0].item()
    assert losses["roberta"] == losses["droptoken 0"] == losses["droptoken near 0"]
    assert losses["droptoken near 1"] == losses["droptoken 1"] != losses["roberta"]


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4096])
def test_dropped_tokens_of_rows_of_every_length(length):
    tokens = np.random.RandomState(1).randint(10, 60, (200, length + 1))
    tokens[:, 0] = 0
    valid, protected = np.ones(tokens.shape, dtype=bool), tokens == 0
    for probability, kept in ((0.0, length), (1e-9, length), (1 - 1e-9, 0), (1.0, 0)):
        dropped = draw_dropped(tokens, valid, protected, probability, 1, 5)
        off = int((dropped.sum(1) != length - kept).sum())
        # one row in 1e9 / length may differ by one token
        assert off <= (1 if 0 < probability < 1 else 0) and not dropped[:, 0].any()
    none = np.zeros(tokens.shape, dtype=bool)
    assert not draw_dropped(tokens, valid, ~none, 1.0, 1, 5).any()  # all protected
    assert not draw_dropped(tokens, none, none, 1.0, 1, 5).any()  # all padding


def test_mae_where_everything_is_masked_knows_nothing_of_the_words(built):
    """Rows of equal length look alike, and nothing that the loss depends on but targets is left."""
    task, model, criterion = built("mae")
    logits = []
    for seed in (1, 2):
        sample = task.mask_batch({**collate(task, [word(20, seed)])}, Rates(1.0, 1.0))
        source = torch.where(sample["maskable"], task.mask_idx, sample["tokens"])
        logits.append(model(source, masked_tokens=sample["maskable"])[0])
    assert torch.equal(*logits) and len(logits[0]) == 20


def test_mae_where_nothing_is_masked_sees_every_token(built):
    """Tokens that are predicted but left the same: the encoder works on whole rows."""
    task, model, _ = built("mae")
    tokens = collate(task, [word(20), word(5, 1)])["net_input"]["src_tokens"]
    kept = model.choose_kept(tokens, False, tokens > 3)
    assert kept.column.shape == tokens.shape and (kept.column[0] == torch.arange(21)).all()
    assert torch.isfinite(model(tokens, masked_tokens=tokens > 3)[0]).all()


@pytest.mark.parametrize("name", ["droptoken 1", "mae", "mapnet"])
def test_rows_of_4096_tokens(name, data_bin):
    """With --max-positions to match. What is dropped or not seen costs nothing, so DropToken and MAE are quick here."""
    long = "--tokens-per-sample 4097 --max-positions 4097 --encoder-layers 1 --encoder-attention-heads 1 --batch-size 1"
    task, cfg = harness.make_task(data_bin, *STILL, *ARCHITECTURES[name].split(), *long.split())
    model, criterion = task.build_model(cfg.model).train(), task.build_criterion(cfg.criterion)
    task.load_dataset("valid")
    batch = collate(task, [word(4096)])
    with torch.no_grad():
        if name == "mapnet":
            maskable = batch["mask_plan"]["depth"] <= batch["mask_plan"]["count"][:, None]
            log_q = criterion.propose(model, batch["net_input"]["src_tokens"], maskable)
            assert log_q.exp().sum().item() == pytest.approx(1.0, abs=1e-4)
            _, pair = criterion.draw({**batch, "rates": Rates(0.01, 0.01), "update_num": 0}, log_q)
            assert ((pair.depth <= 0.5 * 4096).sum(-1) == 2048).all()
        else:
            loss, size, _ = criterion(model, task.mask_batch(batch, Rates(0.01, 0.01)))
            assert size in (40, 41) and torch.isfinite(loss)


def test_validation_masks_of_rows_without_words_are_nothing(built):
    task, model, criterion = built("mapnet")
    loss, size, _ = task.valid_step(collate(task, BATCHES["no words"]), model, criterion)
    assert loss == 0 and size == 0
