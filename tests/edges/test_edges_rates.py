"""Rates that ask for many copies: what is refused, in which words, and that memory stays where --max-tokens puts it."""

import harness
import pytest

from fairseq_maskplugins.decoupled_mlm.rates import Rates, build_schedule


@pytest.mark.parametrize("corruption", [1e-4, 1e-12, 1e-300, 5e-324])
def test_more_copies_than_a_row_has_tokens_are_refused(corruption, data_bin):
    """Each copy would corrupt less than a token on average. The smallest rates make a quotient that is infinite."""
    assert Rates(corruption, 1.0).copies >= min(1 / corruption, 1e15) * (1 - 1e-9)
    options = ["--corruption-rate", corruption, "--prediction-rate", 1]
    with pytest.raises(ValueError, match=r"makes .* copies of each sequence, more than --tokens-per-sample, 32: raise") as raised:
        harness.make_task(data_bin, *options)
    assert "\n" not in str(raised.value)


def test_a_schedule_that_ends_in_too_many_copies_is_refused_before_it_starts(data_bin):
    options = "--mask-prob 1 --corruption-rate-final 1e-12 --max-update 10".split()
    with pytest.raises(ValueError, match=r"makes 1e\+12 copies of each sequence"):
        harness.make_task(data_bin, *options)


def test_as_many_copies_as_tokens(data_bin):
    """The most that is allowed: a row of 32 in 32 copies predicts each token once, in a batch as large as it says."""
    options = ["--corruption-rate", 1 / 32, "--prediction-rate", 1]
    task, cfg = harness.make_task(data_bin, *options)
    batch = harness.batches(task, cfg, max_sentences=None, max_tokens=1100)[0]
    assert len(batch["id"]) == 1
    sample = task.mask_batch(batch, task.schedule.start)
    assert sample["target"].numel() == 32 * 32 == 1024
    predicted = (sample["target"] != 1).sum(0)
    assert predicted.tolist() == sample["maskable"][0].long().tolist()


def test_schedules_from_end_to_end_stay_inside_the_interval():
    for start, final in ((1.0, 1e-12), (1e-12, 1.0), (1e-17, 1.0), (1.0, 5e-324), (1e-9, 1e-12)):
        for length in (1, 3, 10**6, 2**40):
            schedule = build_schedule(start, mask_prob_final=final, max_update=length)
            for update in (0, 1, length // 2, length - 1, length, length + 1, 2**62):
                rates = schedule.at(update)
                assert 0 < rates.corruption <= 1 and rates.copies == 1


@pytest.mark.parametrize(
    "options",
    [
        "--mask-prob 1e-12",
        "--mask-prob 1.0 --arch mae_roberta_base",
        "--tokens-per-sample 2 --corruption-rate 0.5 --prediction-rate 1 --arch droptoken_roberta_base --drop-token-prob 1 "
        "--batch-size 128",
        "--criterion mapnet --mapnet-warmup-updates 0 --corruption-rate 1 --prediction-rate 1e-12",
    ],
)
def test_trains_and_validates(options, data_bin, tmp_path):
    """Updates in which nothing is predicted, in which nothing is left to see, of rows of one token: they end well."""
    log = harness.train(data_bin, tmp_path, *options.split(), "--max-update", 3, "--random-token-prob", 0.1)
    assert len(log.train) == 3 and len(log.valid) == 1
    nothing = "1e-12" in options
    for step in log.train:
        assert step["loss"] == 0 if nothing else 0 < step["loss"] < 20
    assert log.valid[0]["valid_loss"] == 0 if nothing else 0 < log.valid[0]["valid_loss"] < 20
