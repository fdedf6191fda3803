"""A missing, damaged or diverged checkpoint: the same line from every tool, before anything is printed or written."""

import contextlib
import re
import sys

import harness
import pytest
import torch

from fairseq_maskplugins.cli import checkpoint_run, import_user_dir, main
from fairseq_maskplugins.correct_embeddings.checkpoint import RECORD
from fairseq_maskplugins.errors import UsageError

MAPNET = "--criterion mapnet --mapnet-embed-dim 16 --mapnet-layers 0 --mapnet-warmup-updates 0 --max-update 2".split()


@pytest.fixture(scope="module")
def checkpoint(data_bin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lines")
    harness.train(data_bin, folder, *MAPNET)
    harness.load_weights(folder / "checkpoint_last.pt")  # allows what checkpoints hold
    return folder / "checkpoint_last.pt"


def commands(path, corpus, folder):
    sp = ["--bpe", "sentencepiece", "--sentencepiece-model", corpus / "sp.model"]
    data = corpus / "bin"
    return {
        "variance": ["variance", path, data, "--cpu", "--rows", 4, "--groups", 2, "--maskers", "mapnet"],
        "show-masks": ["show-masks", data, "--checkpoint", path],
        "fill-mask": ["fill-mask", path, data, "a <mask>", *sp],
        "fisher": ["fisher", data, "--mask", folder / "m", "--restore-file", path, *harness.TINY, *harness.MLM],
        "correct-embeddings": ["correct-embeddings", path, folder / "out.pt"],
        "export-hf": ["export-hf", path, folder / "out", "--bpe", "sentencepiece", "--sentencepiece-model", sp[-1]],
    }


NAMES = list(commands("", harness.ROOT, harness.ROOT))


def said(name, path, corpus, folder, capsys):
    """The line that a command ends with."""
    before = sorted(folder.iterdir())
    with pytest.raises(UsageError) as error:
        main([str(part) for part in commands(path, corpus, folder)[name]])
    assert capsys.readouterr().out == "" and sorted(folder.iterdir()) == before
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", NAMES)
def test_missing_and_damaged(name, checkpoint, corpus, tmp_path, capsys):
    missing, damaged = tmp_path / "missing.pt", tmp_path / "damaged.pt"
    whole = checkpoint.read_bytes()
    assert said(name, missing, corpus, tmp_path, capsys).startswith(
        f"fairseq_maskplugins: {missing}: no such checkpoint"
    )
    for content in (b"", b"no checkpoint at all", whole[: len(whole) // 2]):
        damaged.write_bytes(content)
        start = f"fairseq_maskplugins: {damaged}: can't read this checkpoint: it is damaged, or no checkpoint"
        assert said(name, damaged, corpus, tmp_path, capsys).startswith(start)


@pytest.mark.parametrize("name", NAMES)
def test_diverged(name, checkpoint, corpus, tmp_path, capsys):
    path = tmp_path / "nan.pt"
    state = torch.load(checkpoint)
    for part, key in (
        ("criterion", "proposer.embed.weight"),
        ("model", "encoder.sentence_encoder.embed_tokens.weight"),
    ):
        state[part][key][5, 0] = float("nan")
        torch.save(state, path)
        line = said(name, path, corpus, tmp_path, capsys)
        assert line.startswith(f"fairseq_maskplugins: {path}: {key} holds NaN or infinite values (")
        state[part][key][5, 0] = 0.0


def test_a_model_larger_than_what_its_checkpoint_stores(monkeypatch):
    """Four times as many entries may be built. Data that several tensors show counts once, and all of it."""
    monkeypatch.setattr(checkpoint_run, "SLACK", 0)
    monkeypatch.setattr(checkpoint_run, "EACH", 0)
    flat, one = torch.zeros(100), torch.zeros(1)
    for tensors, most in (
        ([flat], 400),
        ([flat, flat, flat.view(10, 10)], 400),
        ([flat[10 * i : 10 * i + 10] for i in range(10)], 400),
        ([flat, flat[:5]], 400),
        ([one.expand(100)], 4),
        ([flat.half(), one.expand(7)], 404),
    ):
        state = {"model": {f"tensor{i}": tensor for i, tensor in enumerate(tensors)}}
        for entries in (most, most + 1):
            larger = entries > most
            with pytest.raises(UsageError, match="they ask for a larger model") if larger else contextlib.nullcontext():
                with checkpoint_run.building("model.pt", state):
                    torch.nn.Module().register_parameter("weight", torch.nn.Parameter(torch.zeros(entries)))


def test_no_correction_leaves_the_checkpoint_as_it_was(checkpoint, tmp_path, capsys):
    out = tmp_path / "out.pt"
    assert main(["correct-embeddings", str(checkpoint), str(out), "--mask-prob", "0"]) == 0
    assert "output projection: unchanged" in capsys.readouterr().out
    one, other = torch.load(checkpoint), torch.load(out)
    assert one.keys() == other.keys() and RECORD not in other
    assert (
        str(one["cfg"]) == str(other["cfg"])
        and one["last_optimizer_state"].keys() == other["last_optimizer_state"].keys()
    )
    harness.assert_same_weights(checkpoint, out)
    # nothing was corrected, so that it still can be
    assert main(["correct-embeddings", str(out), str(tmp_path / "more.pt")]) == 0


# plug-ins that can't be imported


@pytest.mark.parametrize(
    "text, place, what",
    [
        ("import os\nos.nothing\n", "line 2", "AttributeError: module 'os' has no attribute 'nothing'"),
        ("x = (\n", "line [12]", "SyntaxError: "),
        ("open('/no/such/file')\n", "line 1", "FileNotFoundError: .*No such file"),
        ("import no_such_module\n", "line 1", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_a_plug_in_that_fails(text, place, what, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"plug_in_{tmp_path.name}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(text)
    path = re.escape(str(tmp_path / name))
    with pytest.raises(UsageError) as error:
        import_user_dir(str(tmp_path / name))
    assert re.match(
        rf"fairseq_maskplugins: --user-dir {path}: importing it fails in {path}/__init__.py, {place}: {what}",
        str(error.value),
    )
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("command", [["show-masks", "data"], ["fisher", "data", "--mask", "m"]])
def test_commands_name_a_plug_in_that_fails(command, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "__init__.py").write_text("1 / 0\n")
    run = [sys.executable, "-m", "fairseq_maskplugins.cli", *command, "--user-dir", tmp_path / "broken"]
    done = harness.run(run, cwd=harness.ROOT)
    assert done.returncode == 1 and "Traceback" not in done.stdout
    assert (
        done.stdout.strip().splitlines()[-1].endswith("broken/__init__.py, line 1: ZeroDivisionError: division by zero")
    )
    run[-1] = tmp_path / "nowhere"
    done = harness.run(run, cwd=harness.ROOT)
    assert done.stdout.strip().endswith("nowhere: no such folder") and done.returncode == 1


def test_a_data_workers_line_comes_alone(corpus, tmp_path):
    """Data that can't be checked ahead, read by workers: the main process ends with the line of the worker's error."""
    lines = (corpus / "train.sp").read_text().splitlines()
    lines[41] += " <mask>"
    (tmp_path / "t.sp").write_text("\n".join(lines) + "\n")
    harness.preprocess(tmp_path / "t.sp", corpus / "valid.sp", tmp_path / "bin", "--dataset-impl", "lazy")
    log = harness.train(tmp_path / "bin", tmp_path / "run", "--num-workers", 2, "--max-epoch", 1, check=False)
    last = log.text.strip().splitlines()[-1]
    assert log.returncode == 1 and "Traceback" not in log.text, log.text[-3000:]
    assert re.match(r"fairseq_maskplugins: \S+train: row \d+ holds <mask> itself; remove the word", last)
