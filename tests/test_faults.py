"""Runs and tools that are killed, or find a full disk, while they write: files are whole, and a run resumes to the bit."""

import io
import os
import resource
import shutil
import signal
import sys
from functools import partial

import harness
import pytest
import torch
from forked import Forked

# called in a command's process before the command begins


def kill_at(call, name):
    """Kill the process half-way through writing a file of this name, or just before it is renamed to it."""

    def strike():
        os.kill(os.getpid(), signal.SIGKILL)

    def rename(real):
        return lambda source, target: strike() if os.path.basename(target) == name else real(source, target)

    def save(obj, file, real=torch.save):
        buffer = io.BytesIO()
        real(obj, buffer)
        half = os.path.basename(file.name).startswith(name)
        file.write(buffer.getvalue()[: len(buffer.getvalue()) // 2 if half else None])
        if half:
            file.flush()
            strike()

    def copy(source, target, real=shutil.copyfile, **options):
        if os.path.basename(target).startswith(name):
            with open(source, "rb") as whole, open(target, "wb") as file:
                file.write(whole.read(1000))
            strike()
        return real(source, target, **options)

    if call == "rename":
        os.replace, os.rename = rename(os.replace), rename(os.rename)
    elif call == "save":
        torch.save = save
    else:
        shutil.copyfile = copy


def limit_files(size):
    """Refuse writes beyond this size of a file, as a full disk would."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def run(command, prepare):
    process = Forked(command, cwd=harness.ROOT, prepare=prepare)
    process.wait(300)
    return process.returncode, process.read()


# fairseq-train

OPTIONS = ["--max-update", 4, "--save-interval-updates", 2, "--num-workers", 1, "--random-token-prob", 0.1]


def update_of(path):
    harness.load_weights(path)  # allows what checkpoints hold
    return torch.load(path)["optimizer_history"][-1]["num_updates"]


@pytest.fixture(scope="module")
def whole(data_bin, tmp_path_factory):
    """Checkpoints of an undisturbed run, by update."""
    folder = tmp_path_factory.mktemp("whole")
    harness.train(data_bin, folder, *OPTIONS)
    return {update: folder / f"checkpoint_1_{update}.pt" for update in (2, 4)}


def check(folder, whole):
    """Every checkpoint can be read and is the undisturbed run's."""
    for path in folder.glob("*.pt"):
        harness.assert_same_weights(path, whole[update_of(path)])


def check_resumes(data_bin, folder, whole):
    harness.train(data_bin, folder, *OPTIONS)
    check(folder, whole)
    assert {p.name for p in folder.iterdir()} == {f"checkpoint_{n}.pt" for n in ("1_2", "1_4", "best", "last")}
    assert update_of(folder / "checkpoint_last.pt") == 4


def test_a_run_that_is_killed_while_it_saves(data_bin, whole, tmp_path):
    for call, name, last in (
        ("save", "checkpoint_1_2.pt", None),
        ("rename", "checkpoint_1_2.pt", None),
        ("save", "checkpoint_1_4.pt", 2),
        ("copy", "checkpoint_last.pt", 2),
        ("rename", "checkpoint_last.pt", 2),
    ):
        status, text = run(harness.train_command(data_bin, tmp_path, *OPTIONS), partial(kill_at, call, name))
        assert status == -signal.SIGKILL, text
        check(tmp_path, whole)
        assert last is None or update_of(tmp_path / "checkpoint_last.pt") == last
    check_resumes(data_bin, tmp_path, whole)


def test_a_full_disk_while_a_run_saves(data_bin, whole, tmp_path):
    harness.train(data_bin, tmp_path, *OPTIONS, "--max-update", 2)
    half = os.path.getsize(whole[4]) // 2
    status, text = run(harness.train_command(data_bin, tmp_path, *OPTIONS), partial(limit_files, half))
    said = f"fairseq_maskplugins: {tmp_path}/checkpoint_1_4.pt: can't write the checkpoint: File too large; the previous"
    assert status == 1 and "Traceback" not in text and text.strip().splitlines()[-1] == f"{said} one is intact"
    check(tmp_path, whole)
    assert update_of(tmp_path / "checkpoint_last.pt") == 2
    check_resumes(data_bin, tmp_path, whole)


def test_a_second_try_begins_a_new_file(tmp_path, monkeypatch):
    """fairseq writes the second try behind what the first has left."""
    from fairseq import checkpoint_utils

    from fairseq_maskplugins import fairseq_fixes, plugins  # noqa: F401

    tries = []

    def fail_once(obj, file, real=torch.save):
        tries.append(file.write(b"half of a checkpoint"))
        if len(tries) == 1:
            raise OSError(5, "Input/output error")
        file.seek(0)
        real(obj, file)

    monkeypatch.setattr(fairseq_fixes, "PAUSE", 0)
    monkeypatch.setattr(torch, "save", fail_once)
    checkpoint_utils.torch_persistent_save([torch.ones(5)], str(tmp_path / "out"))
    assert len(tries) == 2 and torch.load(tmp_path / "out")[0].tolist() == [1.0] * 5
    assert os.listdir(tmp_path) == ["out"]


# commands of maskplugins


@pytest.fixture(scope="module")
def inputs(corpus, tmp_path_factory):
    """Folder with a checkpoint, Fisher information, a mask, text, and a folder of transformers."""
    folder = tmp_path_factory.mktemp("inputs")
    bpe = ["--bpe", "sentencepiece", "--sentencepiece-model", corpus / "sp.model"]
    harness.train(corpus / "bin", folder, "--max-update", 2, "--no-epoch-checkpoints", *bpe)
    (folder / "checkpoint_last.pt").rename(folder / "model.pt")
    (folder / "text").write_text("".join(f"{line}\n" for line in harness.make_lines(300, seed=5)))
    for name, more in (("fisher", ["--mask", folder / "mask"]), ("export-hf", [])):
        harness.run([*command(name, corpus, folder, folder), *more], check=True, cwd=harness.ROOT)
    return folder


TOOLS = {
    "pmi-build": "pmi build {i}/text --output {o}/list.gz --min-count 3 --size 100 --threads 1 --temp-dir {o}",
    "fisher": "fisher {data} --fisher {o}/fisher --restore-file {i}/model.pt --max-examples 8",
    "fisher-select": "fisher select --fisher {i}/fisher --reserve-p 0.1 --mask {o}/mask",
    "fisher-show": "fisher show --mask {i}/mask --png {o}/png",
    "correct-embeddings": "correct-embeddings {i}/model.pt {o}/corrected.pt",
    "export-hf": "export-hf {i}/model.pt {o}/hf",
    "import-hf": "import-hf {i}/hf {o}/fairseq",
    "show-masks": "show-masks {data} --measure 50 --rows 2 --html {o}/page.html",
    "variance": "variance {i}/model.pt {data} --rows 4 --masks 2 --groups 2 --cpu --png {o}/png",
}
SLOW = ("fisher-select", "fisher-show", "variance")


def command(name, corpus, folder, out):
    options = TOOLS[name].format(i=folder, o=out, data=corpus / "bin").split()
    if name == "fisher":
        options += ["--user-dir", harness.USER_DIR, *harness.TINY, *harness.MLM]
    return [sys.executable, "-m", "fairseq_maskplugins.cli", *options]


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in TOOLS])
def test_a_tool_that_is_killed_or_finds_a_full_disk(name, corpus, inputs, tmp_path):
    """The result of before stays as it was; a full disk is one line and leaves nothing else behind."""
    (tmp_path / "whole").mkdir()
    harness.run(command(name, corpus, inputs, tmp_path / "whole"), check=True, cwd=harness.ROOT)
    (result,) = (tmp_path / "whole").iterdir()
    half = max(path.stat().st_size for path in [result, *result.rglob("*")] if path.is_file()) // 2
    out = tmp_path / "out" / result.name
    out.parent.mkdir()
    if result.is_file():
        out.write_text("of before")
    there = result.is_file()
    status, text = run(command(name, corpus, inputs, out.parent), partial(kill_at, "rename", result.name))
    assert status == -signal.SIGKILL, text
    assert out.read_text() == "of before" if there else not out.exists()
    for left in set(out.parent.iterdir()) - {out}:
        assert ".part" in left.name
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    status, text = run(command(name, corpus, inputs, out.parent), partial(limit_files, half))
    last = text.strip().splitlines()[-1]
    assert status == 1 and "Traceback" not in text, text
    assert last.startswith("fairseq_maskplugins: ") and (str(out) in last or "--temp-dir" in last)
    assert os.listdir(out.parent) == [result.name] * there
    assert not there or out.read_text() == "of before"
