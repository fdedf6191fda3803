"""What fairseq writes into checkpoints loads in our tools and in fairseq, also what the other generation wrote."""

import argparse
import io
import re
import sys
import zipfile
from collections import OrderedDict

import harness
import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from fairseq_maskplugins import plugins  # noqa: F401  (allows what checkpoints hold)
from fairseq_maskplugins.checkpoints import allow_in_checkpoints, read_checkpoint, read_upgraded_checkpoint
from fairseq_maskplugins.cli import main
from fairseq_maskplugins.compat import drop_foreign_options
from fairseq_maskplugins.correct_embeddings.checkpoint import RECORD
from fairseq_maskplugins.errors import UsageError

EMBEDDING = "encoder.sentence_encoder.embed_tokens.weight"


def renamed(content, core):
    """A checkpoint with the names of numpy 1 (``numpy.core``) or numpy 2 (``numpy._core``)."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            part = old.read(name)
            if name.endswith("data.pkl"):
                assert b"multiarray" in part
                part = part.replace(b"numpy._core", b"numpy.core").replace(b"numpy.core", core)
            new.writestr(name, part)
    return out.getvalue()


@pytest.mark.parametrize("core", [b"numpy.core", b"numpy._core"])
def test_numpy_scalars_of_meters(core, mapnet_state, data_bin, tmp_path):
    """They load in our tools and in fairseq, which resumes from them."""
    path = tmp_path / "model.pt"
    mapnet_state["extra_state"]["best"] = np.float64(1.5)
    mapnet_state["extra_state"]["val_loss"] = np.float32(2.5)
    meter = {"val": np.float64(2), "sum": np.float64(4), "count": np.int64(2), "round": 3}
    mapnet_state["extra_state"]["metrics"]["default"].append((10, "other", "AverageMeter", meter))
    torch.save(mapnet_state, path)
    path.write_bytes(renamed(path.read_bytes(), core))
    for read in (read_checkpoint, read_upgraded_checkpoint):
        found = read(str(path))["extra_state"]
        assert found["best"] == 1.5 and found["metrics"]["default"][-1][3] == meter
    log = harness.train(data_bin, tmp_path / "run", *harness.MAPNET, "--max-update", 3, "--restore-file", path)
    assert sorted(log.losses()) == [3]


@pytest.mark.parametrize("zipped", [True, False])
def test_what_checkpoints_hold(zipped, tmp_path):
    """omegaconf nodes, namespaces, scalars, half precision and views, in files of new and old torch."""
    state = {
        "cfg": OmegaConf.create({"task": {"_name": "masked_lm", "list": [1, 2.5, None, True, "${task._name}"]}}),
        "args": argparse.Namespace(lr=[0.1], data="x", adam_betas="(0.9, 0.98)"),
        "extra_state": OrderedDict(loss=np.float64(1.5), n=np.int64(3), on=np.bool_(True), b=b"\xff\x00"),
        "model": {"w": torch.nn.Parameter(torch.arange(4.0)), "h": torch.ones(3, 2).half().t(), "n": torch.tensor([1])},
        "more": {"set": {1, 2}, "dtype": torch.float16, "e": torch.zeros(0)},
    }
    torch.save(state, tmp_path / "model.pt", _use_new_zipfile_serialization=zipped)
    found = read_checkpoint(str(tmp_path / "model.pt"))
    assert found["cfg"].task.list[4] == "masked_lm" and found["args"] == state["args"]
    assert dict(found["extra_state"]) == dict(state["extra_state"]) and found["more"]["set"] == {1, 2}
    assert torch.equal(found["model"]["w"], state["model"]["w"]) and found["model"]["h"].dtype == torch.float16


class Mine:
    def __init__(self, value):
        self.value = value


def test_classes_of_users_can_be_allowed(tmp_path):
    path = str(tmp_path / "model.pt")
    torch.save({"model": {}, "mine": Mine(3)}, path)
    with pytest.raises(UsageError, match=r"it holds \S*Mine, which"):
        read_checkpoint(path)
    allow_in_checkpoints(Mine)
    assert read_checkpoint(path)["mine"].value == 3


def test_resume_validate_and_fine_tune(data_bin, tmp_path):
    """Through fairseq's own commands; fine-tuning has the dictionary that pretraining had."""
    run, tuned = tmp_path / "run", tmp_path / "tuned"
    last = run / "checkpoint_last.pt"
    harness.train(data_bin, run, "--max-update", 3)
    again = harness.train(data_bin, run, "--max-update", 5)
    assert sorted(again.losses()) == [4, 5]
    command = [sys.executable, "-m", "fairseq_cli.validate", data_bin, "--user-dir", harness.USER_DIR, *harness.MLM]
    command += ["--path", last, "--cpu", "--seed", 3, "--log-format", "json"]
    validated = harness.run(command, check=True).stdout
    # fairseq-validate masks as the trainer's validation does: same loss
    assert re.search(r'"valid_loss": "?([\d.]+)', validated).group(1) == str(again.valid[-1]["valid_loss"])
    log = harness.train(data_bin, tuned, "--finetune-from-model", last, "--max-update", 1)
    assert sorted(log.losses()) == [1]
    before, after = (harness.load_weights(d / "checkpoint_last.pt")[EMBEDDING] for d in (run, tuned))
    assert before.shape == after.shape


def test_inference_copies_of_the_other_generation_are_dropped(mapnet_state, tmp_path):
    """Layers of fairseq 0.12.2 hold copies of their weights, and so do its checkpoints; those of fairseq-fixed don't."""
    path, own = str(tmp_path / "model.pt"), set(mapnet_state["model"])
    for name, tensor in list(mapnet_state["model"].items()):
        if ".fc1." in name:
            mapnet_state["model"][name.replace(".fc1.", ".fc1_")] = tensor.clone()
    torch.save(mapnet_state, path)
    assert set(read_upgraded_checkpoint(path)["model"]) == own


def test_options_of_the_other_generation_are_dropped_if_unused():
    from fairseq.tasks.masked_lm import MaskedLMConfig

    task = {"include_index": True, "d2v2_multi": True, "mask_prob": 0.4, "strange": False}
    state = {"cfg": OmegaConf.create({"task": task})}
    drop_foreign_options(state)
    known = {"include_index"} & set(MaskedLMConfig.__dataclass_fields__)
    assert set(state["cfg"].task) == {"d2v2_multi", "mask_prob", "strange"} | known  # one that is on is refused by name


def test_no_correction_leaves_the_checkpoint_as_it_was(mapnet_checkpoint, tmp_path, capsys):
    out = tmp_path / "out.pt"
    assert main(["correct-embeddings", str(mapnet_checkpoint), str(out), "--mask-prob", "0"]) == 0
    assert "output projection: unchanged" in capsys.readouterr().out
    one, other = torch.load(mapnet_checkpoint), torch.load(out)
    assert one.keys() == other.keys() and RECORD not in other
    assert str(one["cfg"]) == str(other["cfg"])
    assert one["last_optimizer_state"].keys() == other["last_optimizer_state"].keys()
    harness.assert_same_weights(mapnet_checkpoint, out)
    # nothing was corrected, so that it still can be
    assert main(["correct-embeddings", str(out), str(tmp_path / "more.pt")]) == 0
