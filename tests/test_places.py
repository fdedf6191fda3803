"""Results never take the place of what a command reads, or of each other."""

import os

import pytest

from fairseq_maskplugins.cli import check_outputs, main
from fairseq_maskplugins.errors import UsageError


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (
        "model.pt", "bin/dict.txt", "bin/train.bin", "bin/train.idx", "bin/input0/valid.bin", "bin/notes", "more/dict.txt",
        "list", "sp.model", "text", "fisher.st", "mask.st", "encoder.json",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"what {name} holds\n")
    os.symlink("model.pt", "link.pt")
    return tmp_path


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "command",
    [
        "show-masks bin --checkpoint model.pt --html link.pt",
        "variance model.pt bin --png model.pt",
        "correct-embeddings model.pt link.pt",
        "correct-embeddings model.pt bin/dict.txt --dict bin/dict.txt",
        "pmi build text --output text",
        "pmi build text --words sentencepiece --sentencepiece-model sp.model --output sp.model",
        "fisher select --fisher fisher.st --reserve-p 0.2 --mask fisher.st",
        "fisher show --mask mask.st --png mask.st",
        "fisher bin --mask model.pt --arch roberta_base --restore-file model.pt --save-dir nowhere",
    ],
)
def test_what_is_read_stays(files, command, monkeypatch):
    before = content(files)
    with pytest.raises(UsageError, match=r": is one of the input files; give another name$") as error:
        main(command.split())
    assert error.value.message.startswith(("--", "OUT ")) and content(files) == before


@pytest.mark.parametrize("command", ["variance model.pt bin --png one --json ./one", "fisher bin --fisher one --mask one"])
def test_two_results_are_two_files(files, command):
    before = content(files)
    with pytest.raises(UsageError, match=r"^.*: --\w+ and --\w+ must be two files, got \S*one for both$"):
        main(command.split())
    assert content(files) == before


def test_other_files_are_replaced(files):
    """Those of an earlier run, in the directory of the data too."""
    check_outputs({"--html": "bin/notes", "--png": "text", "--json": "-", "--mask": None}, "bin", "model.pt", None)
    for path, rule in (("", "must name a file"), ("bin", "must name a file"), ("no/page", "the folder .*/no does not exist")):
        with pytest.raises(UsageError, match=rule):
            check_outputs({"--html": path})
