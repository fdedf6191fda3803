"""Pipes that nobody writes to, and devices without an end, in the place of every file that a command reads."""

import os
import shutil
import subprocess
import sys

import harness
import pytest
from guarded import check_line, command, guarded

from fairseq_maskplugins.compat import load_dictionary
from fairseq_maskplugins.maskers.pmi_vocab import load_phrases

# what each reads in the place of the special file, by a name; "data" and "hf" are folders, one of whose files it is
READERS = {
    "correct-embeddings": "correct-embeddings SPECIAL OUT",
    "correct-embeddings --dict": "correct-embeddings CHECKPOINT OUT --dict SPECIAL",
    "export-hf": "export-hf SPECIAL OUT",
    "export-hf --dict": "export-hf CHECKPOINT OUT --no-tokenizer --dict SPECIAL",
    "export-hf --labels": "export-hf CHECKPOINT OUT --no-tokenizer --labels SPECIAL",
    "export-hf --sentencepiece-model": "export-hf CHECKPOINT OUT --bpe sentencepiece --sentencepiece-model SPECIAL",
    "fill-mask": "fill-mask SPECIAL DATA <mask>",
    "fill-mask dict.txt": "fill-mask CHECKPOINT data/dict.txt <mask> --bpe characters",
    "fill-mask --sentencepiece-model": "fill-mask CHECKPOINT DATA <mask> --bpe sentencepiece --sentencepiece-model SPECIAL",
    "fill-mask --gpt2-vocab-bpe": "fill-mask CHECKPOINT DATA <mask> --bpe gpt2 --gpt2-encoder-json SPECIAL --gpt2-vocab-bpe X",
    "variance": "variance SPECIAL DATA",
    "variance train.idx": "variance CHECKPOINT data/train.idx --rows 4 --groups 2",
    "show-masks dict.txt": "show-masks data/dict.txt",
    "show-masks valid.bin": "show-masks data/valid.bin",
    "show-masks valid.idx": "show-masks data/valid.idx",
    "show-masks --pmi-vocab": "show-masks DATA --masker pmi --pmi-unit token --pmi-vocab SPECIAL --bpe sentencepiece MODEL",
    "show-masks --checkpoint": "show-masks DATA --checkpoint SPECIAL",
    "show-masks --sentencepiece-model": "show-masks DATA --masker whole_word --bpe sentencepiece --sentencepiece-model SPECIAL",
    "fisher --restore-file": "fisher DATA --mask OUT --restore-file SPECIAL",
    "fisher select": "fisher select --fisher SPECIAL --reserve-p 0.3 --mask OUT",
    "fisher show": "fisher show --mask SPECIAL",
    "import-hf config.json": "import-hf hf/config.json OUT",
    "import-hf tokenizer.json": "import-hf hf/tokenizer.json OUT",
    "pmi stats": "pmi stats SPECIAL",
    "pmi stats train.bin": "pmi stats LIST data/train.bin",
    "pmi stats --sentencepiece-model": "pmi stats LIST DATA --bpe sentencepiece --sentencepiece-model SPECIAL",
    "pmi build --sentencepiece-model": "pmi build TEXT --output OUT --words sentencepiece --sentencepiece-model SPECIAL",
}


@pytest.fixture(scope="module")
def checkpoint(data_bin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("devices")
    harness.train(data_bin, folder, "--max-update", 1)
    return folder / "checkpoint_last.pt"


@pytest.fixture(params=["pipe", "device"])
def special(request, tmp_path):
    if request.param == "device":
        return "/dev/zero"
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.mark.parametrize("name", READERS)
def test_special_files(name, special, checkpoint, corpus, tmp_path):
    words = {"SPECIAL": [special], "OUT": [tmp_path / "out"], "CHECKPOINT": [checkpoint], "DATA": [corpus / "bin"]}
    words.update(LIST=[corpus / "phrases.txt"], TEXT=[corpus / "train.txt"])
    words["MODEL"] = ["--sentencepiece-model", corpus / "sp.model"]
    folders = {"data": corpus / "bin", "hf": tmp_path / "empty"}
    (tmp_path / "empty").mkdir()
    arguments = []
    for word in READERS[name].split():
        folder, slash, entry = word.partition("/")
        if slash:
            shutil.copytree(folders[folder], tmp_path / folder)
            (tmp_path / folder / entry).unlink(missing_ok=True)
            (tmp_path / folder / entry).symlink_to(special)
            special, arguments = tmp_path / folder / entry, [*arguments, tmp_path / folder]
        else:
            arguments += words.get(word, [word])
    if name.startswith("fisher --"):
        arguments += [*harness.TINY, *harness.MLM]
    before = sorted(tmp_path.iterdir())
    outcome = guarded(command, *arguments, seconds=60)
    check_line(outcome, special)
    assert (
        "must be a file, not a device or a pipe" in outcome.text
        or "can't read the dictionary: it is no file" in outcome.text
    )
    assert sorted(tmp_path.iterdir()) == before


def test_of_python(special):
    for read in (load_dictionary, load_phrases):
        check_line(guarded(read, str(special), seconds=60), special, "file")


def test_text_that_is_a_device(tmp_path):
    for text in ("/dev/zero", "/dev/null"):
        for words in (["build", text, "--output", tmp_path / "out"], ["stats", tmp_path / "list", "--text", text]):
            (tmp_path / "list").write_text("new york\n")
            check_line(guarded(command, "pmi", *words, seconds=60), text, "must be a file or a pipe, not a device")
    assert os.listdir(tmp_path) == ["list"]


def test_text_that_is_a_pipe(tmp_path):
    """It is read as it comes, once; whoever writes to it is not disturbed."""
    pipe, expected = tmp_path / "pipe", tmp_path / "expected"
    os.mkfifo(pipe)
    (tmp_path / "text").write_text("in new york city\n" * 20)
    more = ["--temp-dir", tmp_path, "--threads", 1]
    for text, out in ((tmp_path / "text", expected), (pipe, tmp_path / "out")):
        if text == pipe:
            code = "import sys; open(sys.argv[1], 'w').write('in new york city\\n' * 20)"
            writer = subprocess.Popen([sys.executable, "-c", code, pipe], stderr=subprocess.PIPE)
        outcome = guarded(command, "pmi", "build", text, "--output", out, *more, megabytes=2500, seconds=120)
        assert outcome.kind == "done", outcome
    assert writer.communicate(timeout=60)[1] == b"" and writer.returncode == 0
    assert (tmp_path / "out").read_text() == expected.read_text() != ""
    for option, said in (
        (["--coverage", 0.5], "--coverage reads the text twice"),
        (["--engine", "spark"], "reads files"),
    ):
        outcome = guarded(command, "pmi", "build", pipe, "--output", tmp_path / "more", *more, *option, seconds=60)
        check_line(outcome, pipe, said)
