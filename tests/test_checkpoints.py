"""Reading checkpoints: code is refused, wrong files get one line from every tool, and what fairseq writes loads."""

import argparse
import builtins
import io
import os
import pickle
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

MAPNET = "--criterion mapnet --mapnet-embed-dim 16 --mapnet-layers 0 --mapnet-warmup-updates 0 --max-update 2".split()
EMBEDDING = "encoder.sentence_encoder.embed_tokens.weight"


@pytest.fixture(scope="module")
def checkpoint(data_bin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    harness.train(data_bin, folder, *MAPNET)
    return folder / "checkpoint_last.pt"


@pytest.fixture
def state(checkpoint):
    return torch.load(checkpoint)


def commands(path, corpus, folder):
    sp = ["--bpe", "sentencepiece", "--sentencepiece-model", corpus / "sp.model"]
    data = corpus / "bin"
    return {
        "variance": ["variance", path, data, "--cpu", "--rows", 4, "--groups", 2, "--maskers", "mapnet"],
        "show-masks": ["show-masks", data, "--checkpoint", path],
        "fill-mask": ["fill-mask", path, data, "a <mask>", *sp],
        "fisher": ["fisher", data, "--mask", folder / "m", "--restore-file", path, *harness.TINY, *harness.MLM],
        "correct-embeddings": ["correct-embeddings", path, folder / "out.pt"],
        "export-hf": ["export-hf", path, folder / "out", *sp],
    }


each_tool = pytest.mark.parametrize("name", list(commands("", harness.ROOT, harness.ROOT)))


def line_of(name, path, corpus, folder, capsys):
    """The line that a command ends with; nothing is printed or written before it."""
    before = sorted(folder.iterdir())
    with pytest.raises(UsageError) as error:
        main([str(part) for part in commands(path, corpus, folder)[name]])
    assert capsys.readouterr().out == "" and sorted(folder.iterdir()) == before
    assert str(error.value).isprintable()
    return str(error.value)


def saved(content, **options):
    out = io.BytesIO()
    torch.save(content, out, **options)
    return out.getvalue()


def zip_of(name, content):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr(name, content)
    return out.getvalue()


FOREIGN = {
    "empty": b"",
    "text": b"no checkpoint at all\n" * 100,
    "zip": zip_of("folder/notes.txt", "notes"),
    "pickle": pickle.dumps({"model": [1, 2]}, 2),
    "pickle of protocol 4": pickle.dumps([1, 2], 4),
    "a list": saved([1, 2]),
    "other keys": saved({"weight": torch.zeros(2)}),
    "no tensors": saved({"model": {"a": 1}, "args": None, "cfg": None, "extra_state": {}}),
}


@each_tool
def test_missing_truncated_and_foreign_files(name, checkpoint, corpus, tmp_path, capsys):
    path, whole = tmp_path / "model.pt", checkpoint.read_bytes()
    assert f"{path}: no such checkpoint" in line_of(name, path, corpus, tmp_path, capsys)
    lengths = (1, 100, len(whole) // 2, len(whole) - 100, len(whole) - 1)
    for content in (*FOREIGN.values(), *(whole[:length] for length in lengths)):
        path.write_bytes(content)
        line = line_of(name, path, corpus, tmp_path, capsys)
        damaged = f"fairseq_maskplugins: {path}: can't read this checkpoint: it is damaged, or not a checkpoint"
        assert line.startswith((damaged, f"fairseq_maskplugins: {path}: not a fairseq checkpoint: ")), line


@each_tool
def test_weights_that_are_not_finite(name, state, corpus, tmp_path, capsys):
    path = tmp_path / "nan.pt"
    for part, key in (("criterion", "proposer.embed.weight"), ("model", EMBEDDING)):
        state[part][key][5, 0] = float("nan")
        torch.save(state, path)
        line = line_of(name, path, corpus, tmp_path, capsys)
        assert line.startswith(f"fairseq_maskplugins: {path}: {key} holds NaN or infinite values")
        state[part][key][5, 0] = 0.0


# code


class Call:
    """Pickles to a call."""

    def __init__(self, function, argument):
        self.call = function, (argument,)

    def __reduce__(self):
        return self.call


def payloads(mark):
    """Calls that leave a mark, by the name that is refused."""
    return {
        "posix.system": Call(os.system, f"mkdir {mark}"),
        "eval": Call(builtins.eval, f"__import__('os').mkdir({str(mark)!r})"),
    }


def test_the_payloads_are_real(tmp_path):
    for name in ("posix.system", "eval"):
        pickle.loads(pickle.dumps(payloads(tmp_path / name)[name]))
        assert (tmp_path / name).exists()


@each_tool
@pytest.mark.parametrize("callee", ["posix.system", "eval"])
def test_code_is_refused_by_every_tool(callee, name, state, corpus, tmp_path, capsys):
    path, mark = tmp_path / "model.pt", tmp_path / "mark"
    payload = payloads(mark)[callee]
    for content in (
        saved({**state, "extra_state": payload}),
        saved({**state, "extra_state": payload}, _use_new_zipfile_serialization=False),
        saved({**state, "args": argparse.Namespace(dropout=payload)}),
        saved(payload),
    ):
        path.write_bytes(content)
        line = line_of(name, path, corpus, tmp_path, capsys)
        said = f"{path}: refused to load this checkpoint: it holds {callee}, which is no part of a fairseq checkpoint"
        assert line.startswith(f"fairseq_maskplugins: {said}") and not mark.exists()


@pytest.mark.parametrize("option", ["--restore-file", "--finetune-from-model"])
@pytest.mark.parametrize("callee", ["posix.system", "eval"])
def test_fairseq_train_does_not_run_code(callee, option, state, data_bin, tmp_path):
    """torch's weights-only loading is on under our --user-dir, and what it refuses is not allowed by us."""
    path, mark = tmp_path / "model.pt", tmp_path / "mark"
    path.write_bytes(saved({**state, "extra_state": payloads(mark)[callee]}))
    log = harness.train(data_bin, tmp_path / "run", option, path, "--max-update", 1, check=False)
    assert log.returncode == 1 and not mark.exists() and "Weights" in log.text


@pytest.mark.parametrize("text", ["exit()", "(lambda: 1)()", "().__class__", "[0] * 10**12", "${task.data}", b"exit()"])
def test_options_that_fairseq_evaluates(text, state, tmp_path):
    path = str(tmp_path / "model.pt")
    said = "model.pt: its option {} must be a literal, got .*, which could run code"
    torch.save({**state, "cfg": {**state["cfg"], "optimizer": {"adam_betas": text}}}, path)
    for read in (read_checkpoint, read_upgraded_checkpoint):
        with pytest.raises(UsageError, match=said.format("adam_betas")):
            read(path)
    torch.save({**state, "args": argparse.Namespace(adaptive_softmax_cutoff=text)}, path)
    with pytest.raises(UsageError, match=said.format("adaptive_softmax_cutoff")):
        read_checkpoint(path)


@pytest.mark.parametrize("text", ["(0.9, 0.98)", "4000,20000", "None"])
def test_literals_of_options(text, state, tmp_path):
    torch.save({**state, "args": argparse.Namespace(adam_betas=text)}, tmp_path / "model.pt")
    assert read_checkpoint(str(tmp_path / "model.pt"))["args"].adam_betas == text


# what fairseq writes


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
def test_numpy_scalars_of_meters(core, state, data_bin, tmp_path):
    """They load in our tools and in fairseq, which resumes from them."""
    path = tmp_path / "model.pt"
    state["extra_state"]["best"] = np.float64(1.5)
    state["extra_state"]["val_loss"] = np.float32(2.5)
    meter = {"val": np.float64(2), "sum": np.float64(4), "count": np.int64(2), "round": 3}
    state["extra_state"]["metrics"]["default"].append((10, "other", "AverageMeter", meter))
    path.write_bytes(renamed(saved(state), core))
    for read in (read_checkpoint, read_upgraded_checkpoint):
        found = read(str(path))["extra_state"]
        assert found["best"] == 1.5 and found["metrics"]["default"][-1][3] == meter
    log = harness.train(data_bin, tmp_path / "run", *MAPNET, "--max-update", 3, "--restore-file", path)
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


def test_inference_copies_of_the_other_generation_are_dropped(state, tmp_path):
    """Layers of fairseq 0.12.2 hold copies of their weights, and so do its checkpoints; those of fairseq-fixed don't."""
    path, own = str(tmp_path / "model.pt"), set(state["model"])
    for name, tensor in list(state["model"].items()):
        if ".fc1." in name:
            state["model"][name.replace(".fc1.", ".fc1_")] = tensor.clone()
    torch.save(state, path)
    assert set(read_upgraded_checkpoint(path)["model"]) == own


def test_options_of_the_other_generation_are_dropped_if_unused():
    from fairseq.tasks.masked_lm import MaskedLMConfig

    task = {"include_index": True, "d2v2_multi": True, "mask_prob": 0.4, "strange": False}
    state = {"cfg": OmegaConf.create({"task": task})}
    drop_foreign_options(state)
    known = {"include_index"} & set(MaskedLMConfig.__dataclass_fields__)
    assert set(state["cfg"].task) == {"d2v2_multi", "mask_prob", "strange"} | known  # one that is on is refused by name


def test_no_correction_leaves_the_checkpoint_as_it_was(checkpoint, tmp_path, capsys):
    out = tmp_path / "out.pt"
    assert main(["correct-embeddings", str(checkpoint), str(out), "--mask-prob", "0"]) == 0
    assert "output projection: unchanged" in capsys.readouterr().out
    one, other = torch.load(checkpoint), torch.load(out)
    assert one.keys() == other.keys() and RECORD not in other
    assert str(one["cfg"]) == str(other["cfg"])
    assert one["last_optimizer_state"].keys() == other["last_optimizer_state"].keys()
    harness.assert_same_weights(checkpoint, out)
    # nothing was corrected, so that it still can be
    assert main(["correct-embeddings", str(out), str(tmp_path / "more.pt")]) == 0
