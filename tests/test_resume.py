"""Runs that are killed, and runs on two ranks, end where an uninterrupted run on one would."""

import math

import harness
import pytest

# rows of different lengths, several epochs, workers that read ahead, several batches an update
UNEVEN = "--sample-break-mode eos --tokens-per-sample 256 --max-positions 256".split()


def test_killed_in_the_middle_of_an_epoch(data_bin, tmp_path):
    options = [*UNEVEN, "--num-workers", 2, "--update-freq", 2, "--max-update", 40, "--save-interval-updates", 4]
    options += ["--random-token-prob", 0.1, "--mask-prob", 0.5, "--mask-prob-final", 0.2]
    whole = harness.train(data_bin, tmp_path / "whole", *options)
    saved = tmp_path / "killed" / "checkpoint_2_16.pt"  # 13 updates an epoch
    command = harness.train_command(data_bin, tmp_path / "killed", *options)
    printed = harness.kill_when(command, saved.exists)
    assert "done training" not in printed
    rest = harness.train(data_bin, tmp_path / "killed", *options)
    first = min(rest.losses())
    # 17 where the copy to checkpoint_last.pt was done, 14 (the end of the first epoch) where the kill came before it
    assert first in range(14, 41)
    assert rest.losses() == {update: loss for update, loss in whole.losses().items() if update >= first}
    rates = {step["num_updates"]: step["corruption_rate"] for step in whole.train}
    assert all(rates[step["num_updates"]] == step["corruption_rate"] for step in rest.train)
    harness.assert_same_weights(*(tmp_path / run / "checkpoint_last.pt" for run in ("whole", "killed")))


def test_two_ranks_on_uneven_data(data_bin, tmp_path):
    options = [*UNEVEN, "--max-update", 50, "--save-interval-updates", 25, "--prediction-rate", 0.9]
    logs = harness.train_two_ranks(data_bin, [tmp_path / "rank0", tmp_path / "rank1"], *options)
    assert "50" in logs[0].digests and logs[0].digests == logs[1].digests


def test_two_ranks_resume(data_bin, tmp_path):
    """Rank 0 reads the checkpoint and sends it to the other: the same weights as in a run that was not interrupted."""
    options = [*UNEVEN, "--save-interval-updates", 3, "--max-update"]
    whole = harness.train_two_ranks(data_bin, [tmp_path / "a", tmp_path / "b"], *options, 6)
    run = [tmp_path / "c", tmp_path / "c"]
    harness.train_two_ranks(data_bin, run, *options, 3)
    rest = harness.train_two_ranks(data_bin, run, *options, 6)
    assert sorted(rest[0].losses()) == [4, 5, 6]
    assert rest[0].digests["6"] == rest[1].digests["6"] == whole[0].digests["6"]


def test_two_ranks_mask_like_one(data_bin, tmp_path):
    """Two ranks with batches of 4 see what one rank sees with two batches of 4 an update: same losses, dropout off."""
    options = "--batch-size 4 --dropout 0 --attention-dropout 0 --max-update 6 --required-batch-size-multiple 1".split()
    one = harness.train(data_bin, tmp_path / "one", *options, "--update-freq", 2)
    two, _ = harness.train_two_ranks(data_bin, [tmp_path / "a", tmp_path / "b"], *options)
    assert one.losses().keys() == two.losses().keys()
    for update, loss in one.losses().items():
        assert two.losses()[update] == pytest.approx(loss, abs=2e-3)  # logged with three decimals
    assert [step["corruption_rate"] for step in one.train] == [step["corruption_rate"] for step in two.train]


def test_the_old_data_format_trains(corpus, data_bin, tmp_path):
    """Data sets of ``--dataset-impl lazy`` or ``cached``, through the trainer: the same losses as memory-mapped ones."""
    options = ["--srcdict", data_bin / "dict.txt", "--dataset-impl", "lazy"]
    harness.preprocess(corpus / "train.sp", corpus / "valid.sp", tmp_path / "bin", *map(str, options))
    logs = [harness.train(data, tmp_path / data.parent.name, "--max-update", 3) for data in (data_bin, tmp_path / "bin")]
    assert logs[0].losses() == logs[1].losses() and len(logs[0].losses()) == 3


@pytest.fixture(scope="module")
def mostly_empty(corpus, tmp_path_factory):
    """Every second line empty: rows of ``<s> </s>``, so that many batches have nothing to predict."""
    folder = tmp_path_factory.mktemp("empty")
    lines = (corpus / "train.sp").read_text().splitlines()[:40]
    (folder / "t.sp").write_text("\n\n".join(lines) + "\n\n")
    harness.preprocess(folder / "t.sp", folder / "t.sp", folder / "bin", "--srcdict", corpus / "bin" / "dict.txt")
    return folder / "bin"


@pytest.mark.parametrize("criterion", ["decoupled_mlm", "masked_lm"])
def test_nothing_to_predict(criterion, mostly_empty, tmp_path):
    """A zero update, no NaN in the weights, and no rank that waits: batches of one row, sorted by length."""
    options = [*UNEVEN, "--batch-size", 1, "--required-batch-size-multiple", 1, "--max-update", 30, "--criterion", criterion]
    logs = harness.train_two_ranks(mostly_empty, [tmp_path / "rank0", tmp_path / "rank1"], *options)
    assert logs[0].digests == logs[1].digests and len(logs[0].losses()) == 30
    weights = harness.load_weights(tmp_path / "rank0" / "checkpoint_last.pt")
    assert all(tensor.isfinite().all() for tensor in weights.values())
    if criterion == "decoupled_mlm":  # fairseq's own divides by the number of predicted tokens when it logs
        assert 0.0 in logs[0].losses().values()
        assert all(math.isfinite(step["loss"]) and math.isfinite(step["gnorm"]) for step in logs[0].train)
