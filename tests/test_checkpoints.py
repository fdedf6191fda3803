"""Reading checkpoints: code is refused, and wrong files get one line from every tool."""

import argparse
import builtins
import io
import os
import pickle
import zipfile

import harness
import pytest
import torch

from fairseq_maskplugins import plugins  # noqa: F401  (allows what checkpoints hold)
from fairseq_maskplugins.checkpoints import read_checkpoint, read_upgraded_checkpoint
from fairseq_maskplugins.cli import main
from fairseq_maskplugins.errors import UsageError

EMBEDDING = "encoder.sentence_encoder.embed_tokens.weight"


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
def test_missing_truncated_and_foreign_files(name, mapnet_checkpoint, corpus, tmp_path, capsys):
    path, whole = tmp_path / "model.pt", mapnet_checkpoint.read_bytes()
    assert f"{path}: no such checkpoint" in line_of(name, path, corpus, tmp_path, capsys)
    lengths = (1, 100, len(whole) // 2, len(whole) - 100, len(whole) - 1)
    for content in (*FOREIGN.values(), *(whole[:length] for length in lengths)):
        path.write_bytes(content)
        line = line_of(name, path, corpus, tmp_path, capsys)
        damaged = f"fairseq_maskplugins: {path}: can't read this checkpoint: it is damaged, or not a checkpoint"
        assert line.startswith((damaged, f"fairseq_maskplugins: {path}: not a fairseq checkpoint: ")), line


@each_tool
def test_weights_that_are_not_finite(name, mapnet_state, corpus, tmp_path, capsys):
    path = tmp_path / "nan.pt"
    for part, key in (("criterion", "proposer.embed.weight"), ("model", EMBEDDING)):
        mapnet_state[part][key][5, 0] = float("nan")
        torch.save(mapnet_state, path)
        line = line_of(name, path, corpus, tmp_path, capsys)
        assert line.startswith(f"fairseq_maskplugins: {path}: {key} holds NaN or infinite values")
        mapnet_state[part][key][5, 0] = 0.0


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


@each_tool
@pytest.mark.parametrize("callee", ["posix.system", "eval"])
def test_code_is_refused_by_every_tool(callee, name, mapnet_state, corpus, tmp_path, capsys):
    path, mark = tmp_path / "model.pt", tmp_path / "mark"
    payload = payloads(mark)[callee]
    for content in (
        saved({**mapnet_state, "extra_state": payload}),
        saved({**mapnet_state, "extra_state": payload}, _use_new_zipfile_serialization=False),
        saved({**mapnet_state, "args": argparse.Namespace(dropout=payload)}),
        saved(payload),
    ):
        path.write_bytes(content)
        line = line_of(name, path, corpus, tmp_path, capsys)
        said = f"{path}: refused to load this checkpoint: it holds {callee}, which is no part of a fairseq checkpoint"
        assert line.startswith(f"fairseq_maskplugins: {said}") and not mark.exists()


@pytest.mark.parametrize("option", ["--restore-file", "--finetune-from-model"])
@pytest.mark.parametrize("callee", ["posix.system", "eval"])
def test_fairseq_train_does_not_run_code(callee, option, mapnet_state, data_bin, tmp_path):
    """torch's weights-only loading is on under our --user-dir, and what it refuses is not allowed by us."""
    path, mark = tmp_path / "model.pt", tmp_path / "mark"
    path.write_bytes(saved({**mapnet_state, "extra_state": payloads(mark)[callee]}))
    log = harness.train(data_bin, tmp_path / "run", option, path, "--max-update", 1, check=False)
    assert log.returncode == 1 and not mark.exists() and "Weights" in log.text


@pytest.mark.parametrize("text", ["exit()", "(lambda: 1)()", "().__class__", "[0] * 10**12", "${task.data}", b"exit()"])
def test_options_that_fairseq_evaluates(text, mapnet_state, tmp_path):
    path = str(tmp_path / "model.pt")
    said = "model.pt: its option {} must be a literal, got .*, which could run code"
    torch.save({**mapnet_state, "cfg": {**mapnet_state["cfg"], "optimizer": {"adam_betas": text}}}, path)
    for read in (read_checkpoint, read_upgraded_checkpoint):
        with pytest.raises(UsageError, match=said.format("adam_betas")):
            read(path)
    torch.save({**mapnet_state, "args": argparse.Namespace(adaptive_softmax_cutoff=text)}, path)
    with pytest.raises(UsageError, match=said.format("adaptive_softmax_cutoff")):
        read_checkpoint(path)


# what fairseq writes
