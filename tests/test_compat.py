"""Versions are named, and checkpoints load with torch's weights-only protection on."""

import argparse
import os
import pickle
import re

import harness
import pytest
import torch

from fairseq_maskplugins.compat import check_versions, complete_batches, drop_foreign_options
from fairseq_maskplugins.errors import UsageError


@pytest.mark.parametrize(
    "versions, named",
    [
        (((3, 8), "0.12.2", None, "1.12.1"), "Python 3.8 is not supported"),
        (((3, 14), None, "0.12.3.1", "2.13.0"), "Python 3.14 is not supported"),
        (((3, 11), "0.12.2", None, "2.13.0"), "fairseq 0.12.2 does not import on Python 3.11"),
        (((3, 10), "0.10.2", None, "1.12.1"), "fairseq 0.10.2 is not supported"),
        (((3, 10), "0.12.2", None, "1.11.0+cu113"), "torch 1.11.0\\+cu113 is too old"),
        (((3, 10), "0.12.2", None, None), "torch is not installed"),
        (((3, 12), None, None, "2.13.0"), "neither fairseq nor fairseq-fixed is installed"),
    ],
)
def test_unsupported_versions(versions, named):
    with pytest.raises(ValueError, match=named):
        raise ValueError(check_versions(*versions))


@pytest.mark.parametrize(
    "versions",
    [
        ((3, 9), "0.12.2", None, "1.12.1"),
        ((3, 10), "0.12.2", None, "2.14.1"),
        ((3, 11), None, "0.12.3.1", "2.13.0+cpu"),
    ],
)
def test_supported_versions(versions):
    assert check_versions(*versions) is None


class Payload:
    """Pickles to a call that leaves a mark: what a hostile checkpoint would do."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def write_hostile(path, mark):
    torch.save(
        {"args": argparse.Namespace(), "cfg": None, "model": {"weight": torch.zeros(2)}, "extra_state": Payload(mark)},
        path,
    )


def test_the_payload_is_real(tmp_path):
    """The crafted file does run code where nothing protects."""
    pickle.loads(pickle.dumps(Payload(tmp_path / "mark")))
    assert (tmp_path / "mark").exists()


def test_hostile_checkpoint_does_not_run(data_bin, tmp_path):
    os.makedirs(tmp_path / "run")
    for option, path in (("--restore-file", tmp_path / "a.pt"), ("--finetune-from-model", tmp_path / "b.pt")):
        write_hostile(path, tmp_path / "mark")
        log = harness.train(data_bin, tmp_path / "run", option, path, "--max-update", 1, check=False)
        assert log.returncode == 1 and not (tmp_path / "mark").exists()
        last = log.text.strip().splitlines()[-1]
        assert last.startswith(f"fairseq_maskplugins: {path}: refused to load this checkpoint: it holds posix.mkdir")


def test_resume_validate_and_fine_tune(corpus, tmp_path):
    """With the protection on, through fairseq's own commands; fine-tuning has the dictionary that pretraining had."""
    import sys

    data, run = corpus / "bin", tmp_path / "run"
    harness.train(data, run, "--max-update", 3)
    again = harness.train(data, run, "--max-update", 5)
    assert sorted(again.losses()) == [4, 5]
    command = [
        sys.executable,
        "-m",
        "fairseq_cli.validate",
        data,
        "--user-dir",
        harness.USER_DIR,
        "--task",
        "decoupled_mlm",
    ]
    command += ["--criterion", "decoupled_mlm", "--path", run / "checkpoint_last.pt", "--tokens-per-sample", 32]
    command += ["--batch-size", 8, "--cpu", "--seed", 3, "--log-format", "json"]
    validated = harness.run(command, check=True).stdout
    # fairseq-validate masks as the trainer's validation does: same loss
    assert re.search(r'"valid_loss": "?([\d.]+)', validated).group(1) == str(again.valid[-1]["valid_loss"])
    tuned = harness.train(
        data, tmp_path / "tuned", "--finetune-from-model", run / "checkpoint_last.pt", "--max-update", 1
    )
    assert sorted(tuned.losses()) == [1]
    embedding = "encoder.sentence_encoder.embed_tokens.weight"
    before, after = (harness.load_weights(d / "checkpoint_last.pt")[embedding] for d in (run, tmp_path / "tuned"))
    assert before.shape == after.shape


def test_checkpoints_of_older_versions(tmp_path):
    """omegaconf nodes and numpy scalars in a checkpoint load with the protection on."""
    import numpy as np
    from fairseq import checkpoint_utils
    from omegaconf import OmegaConf

    import fairseq_maskplugins  # noqa: F401

    cfg = OmegaConf.create({"task": {"_name": "masked_lm", "data": "x", "list": [1, 2.5, None, True]}})
    state = {"cfg": cfg, "args": None, "model": {}, "extra_state": {"loss": np.float64(1.5), "n": np.int64(3)}}
    torch.save(state, tmp_path / "old.pt")
    loaded = torch.load(tmp_path / "old.pt")
    assert loaded["cfg"].task.list[1] == 2.5 and loaded["extra_state"]["loss"] == 1.5
    assert checkpoint_utils.load_checkpoint_to_cpu.__name__ == "load_checkpoint_to_cpu"


def test_copies_of_checkpoints_appear_whole(tmp_path, monkeypatch):
    """A copy that breaks off half-way leaves the checkpoint that was there."""
    import shutil

    from fairseq.file_io import PathManager

    import fairseq_maskplugins  # noqa: F401

    source, target = tmp_path / "checkpoint_1_5.pt", tmp_path / "checkpoint_last.pt"
    source.write_bytes(b"new" * 1000)
    target.write_bytes(b"old")

    def break_off(src, dst, *args, **kwargs):
        with open(dst, "wb") as out:
            out.write(open(src, "rb").read()[:100])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", break_off)
        with pytest.raises(KeyboardInterrupt):
            PathManager.copy(str(source), str(target), overwrite=True)
    assert target.read_bytes() == b"old"
    PathManager.copy(str(source), str(target), overwrite=True)
    assert target.read_bytes() == source.read_bytes()


def test_complete_batches():
    indices = list(range(10))
    assert complete_batches(indices, [[0, 1, 2, 3], [4, 5, 6, 7]]) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert complete_batches(indices, [indices]) == [indices]
    assert complete_batches(indices, []) == [indices]


def test_usage_error_is_one_line_and_two_things():
    error = UsageError("--x must be 1, got 2")
    assert isinstance(error, ValueError) and isinstance(error, SystemExit)
    assert str(error) == str(UsageError(str(error))) == "fairseq_maskplugins: --x must be 1, got 2"


def test_options_of_the_other_generation_are_left_out_where_they_change_nothing():
    from fairseq.tasks.masked_lm import MaskedLMConfig
    from omegaconf import OmegaConf

    task = OmegaConf.create({"include_index": True, "d2v2_multi": True, "mask_prob": 0.4, "strange": False})
    drop_foreign_options(task)
    ours = {"include_index"} & set(MaskedLMConfig.__dataclass_fields__)
    assert set(task) == {"d2v2_multi", "mask_prob", "strange"} | ours  # what is on is refused by name


def test_a_model_of_the_other_generation_is_gone_on_from(data_bin, tmp_path):
    """Layers of fairseq 0.12.2 hold copies of their weights, and so do its checkpoints; those of fairseq-fixed don't."""
    harness.train(data_bin, tmp_path / "one", "--max-update", 1)
    path = tmp_path / "one" / "checkpoint_last.pt"
    harness.load_weights(path)  # torch must know what is in it
    state = torch.load(path)
    for name, tensor in list(state["model"].items()):
        if ".fc1." in name:
            state["model"][name.replace(".fc1.", ".fc1_")] = tensor.clone()
    torch.save(state, tmp_path / "other.pt")
    done = harness.train(data_bin, tmp_path / "two", "--finetune-from-model", tmp_path / "other.pt", "--max-update", 1)
    assert len(done.train) == 1
