"""MAP-Net in fairseq's own training: what a checkpoint holds, where it goes, and ranks with nothing to do."""

import harness
import pytest
import torch

MAPNET = "--criterion mapnet --mapnet-embed-dim 16 --mapnet-layers 1 --mapnet-warmup-updates 1".split()
STEPS = "--max-update 4 --save-interval-updates 2".split()


@pytest.fixture(scope="module")
def trained(data_bin, tmp_path_factory):
    """Folder of a run of 4 updates with checkpoints at 2 and 4."""
    folder = tmp_path_factory.mktemp("mapnet")
    log = harness.train(data_bin, folder, *MAPNET, *STEPS)
    return folder, log


def load(path):
    harness.load_weights(path)  # allows what checkpoints hold
    return torch.load(path, map_location="cpu")


def test_resume_restores_the_proposer_and_its_optimizer_state(trained, data_bin, tmp_path):
    folder, log = trained
    (tmp_path / "checkpoint_last.pt").write_bytes((folder / "checkpoint_1_2.pt").read_bytes())
    rest = harness.train(data_bin, tmp_path, *MAPNET, *STEPS)
    assert rest.losses() == {update: log.losses()[update] for update in (3, 4)}
    one, other, start = (
        load(path) for path in (folder / "checkpoint_1_4.pt", tmp_path / "checkpoint_1_4.pt", folder / "checkpoint_1_2.pt")
    )
    assert all(torch.equal(one["criterion"][name], other["criterion"][name]) for name in one["criterion"])
    assert any(not torch.equal(one["criterion"][name], start["criterion"][name]) for name in one["criterion"])
    states = [state["last_optimizer_state"]["state"] for state in (one, other)]
    count = sum(name.startswith("proposer.") for name in one["criterion"])
    last = sorted(states[0])[-count:]  # the criterion's parameters come last
    for index in last:
        for key in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(states[0][index][key], states[1][index][key])
    assert sum(float(states[0][index]["exp_avg_sq"].sum()) for index in last) > 0


def test_a_proposer_of_other_sizes_is_named(trained, data_bin, tmp_path):
    (tmp_path / "checkpoint_last.pt").write_bytes((trained[0] / "checkpoint_1_2.pt").read_bytes())
    log = harness.train(data_bin, tmp_path, *MAPNET, *STEPS, "--mapnet-layers", 3, check=False)
    assert log.returncode == 1
    assert "fairseq_maskplugins: its MAP-Net proposer has other sizes than this one" in log.text


def test_metrics_are_logged(trained):
    _, log = trained
    step = log.train[-1]
    names = "loss unweighted_loss preference_loss preference_accuracy proposal_entropy effective_sample_size".split()
    assert set(names) | {"clipped_weights", "proposed_decile_1", "corruption_rate"} <= step.keys()
    assert 0 < step["proposal_entropy"] <= 1 and 0 < step["effective_sample_size"] <= 1
    assert log.valid and not any("preference" in name for name in log.valid[-1]) and 0 < log.valid[-1]["valid_loss"] < 50


def test_checkpoint_fine_tunes_without_the_criterion(trained, data_bin, tmp_path):
    done = harness.train(
        data_bin, tmp_path, "--restore-file", trained[0] / "checkpoint_1_4.pt", "--reset-optimizer", "--reset-dataloader",
        "--reset-meters", "--max-update", 1, base=harness.TINY + harness.LABELLED,
    )  # fmt: skip
    assert len(done.losses()) == 1


def test_plain_checkpoint_continues_with_mapnet(data_bin, tmp_path):
    harness.train(data_bin, tmp_path / "plain", "--max-update", 2)
    last = tmp_path / "plain" / "checkpoint_last.pt"
    refused = harness.train(data_bin, tmp_path / "a", *MAPNET, "--restore-file", last, "--max-update", 4, check=False)
    assert refused.returncode == 1 and "please reset the optimizer (--reset-optimizer)" in refused.text
    options = ["--restore-file", last, "--reset-optimizer", "--reset-dataloader", "--reset-meters", "--max-update", 1]
    done = harness.train(data_bin, tmp_path / "b", *MAPNET, "--lr", 0.0, *options)
    assert "this one starts from its initial weights" in done.text and len(done.losses()) == 1
    harness.assert_same_weights(last, tmp_path / "b" / "checkpoint_last.pt")  # with --lr 0


def test_ranks_with_nothing_to_predict(tmp_path):
    """Rows of <unk> alone have no maskable token: in most steps one rank or the other has nothing, at the end one has no
    batch at all. Nothing hangs, the ranks stay equal, and the logs are those of one rank with the same batches."""
    words = "aa bb cc dd ee ff gg hh".split()
    lines = [" ".join(words[i % 8 :] + words[: i % 8]) if i % 2 else " ".join(f"u{i}x{j}" for j in range(8)) for i in range(9)]
    (tmp_path / "train").write_text("\n".join(lines) + "\n")
    (tmp_path / "valid").write_text("\n".join(lines[1:4]) + "\n")
    harness.preprocess(tmp_path / "train", tmp_path / "valid", tmp_path / "bin", "--thresholdsrc", "2")
    options = [*MAPNET, "--sample-break-mode", "eos", "--batch-size", 1, "--max-epoch", 2, "--save-interval-updates", 1]
    options += ["--dropout", 0, "--attention-dropout", 0]
    folders = [tmp_path / "rank0", tmp_path / "rank1"]
    logs = harness.train_two_ranks(tmp_path / "bin", folders, *options, "--update-freq", 2)
    assert len(logs[0].digests) >= 4 and logs[0].digests == logs[1].digests
    assert len(set(logs[0].digests.values())) == len(logs[0].digests)
    alone = harness.train(tmp_path / "bin", tmp_path / "alone", *options, "--update-freq", 4)
    assert logs[0].losses() == pytest.approx(alone.losses(), abs=2e-3)
    assert [v["valid_loss"] for v in logs[0].valid] == pytest.approx([v["valid_loss"] for v in alone.valid], abs=2e-3)
    names = "unweighted_loss proposal_entropy effective_sample_size clipped_weights".split()
    for one, both in zip(alone.train, logs[0].train):
        assert [both[name] for name in names] == pytest.approx([one[name] for name in names], abs=2e-3)
