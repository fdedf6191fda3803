"""Wrong files for tools: each gets one line that names it. Checkpoints: ``test_checkpoints.py``."""

import gzip
import json
import shutil
import sys

import harness
import numpy as np
import pytest
from safetensors.numpy import load_file, save

from fairseq_maskplugins.cli import main
from fairseq_maskplugins.errors import UsageError


def check_refused(command, path):
    """One printable line, which names the file."""
    with pytest.raises(UsageError) as error:
        main([str(part) for part in command])
    assert str(error.value).isprintable() and str(path) in str(error.value), str(error.value)


DICTIONARIES = {
    "empty": lambda good: b"",
    "no count": lambda good: good + b"zebra\n",
    "a word twice": lambda good: good + b"zebra 5\nzebra 6\n",
    "not UTF-8": lambda good: good + b"\xff\xfe 5\n",
    "zeros": lambda good: bytes(1000),
}


@pytest.mark.parametrize("name", DICTIONARIES)
def test_dictionaries(name, corpus, tmp_path):
    data = tmp_path / "bin"
    shutil.copytree(corpus / "bin", data)
    path = data / "dict.txt"
    path.write_bytes(DICTIONARIES[name](path.read_bytes()))
    check_refused(["show-masks", data, "--rows", 3, "--measure", 8], path)
    check_refused(["pmi", "stats", corpus / "phrases.txt", data, "--rows", 4], path)


LISTS = {
    "not UTF-8": b"new york\nof \xff\xfe the\n",
    "UTF-16": "new york\n".encode("utf-16"),
    "a score that is text": b"new york\tnew\n",
    "truncated gzip": gzip.compress(b"new york\n" * 1000, mtime=0)[:-9],
    "33 words": b"a " * 33,
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_phrases(name, corpus, tmp_path):
    path = tmp_path / "phrases.txt"
    path.write_bytes(LISTS[name])
    check_refused(["pmi", "stats", path], path)
    words = ["--bpe", "sentencepiece", "--sentencepiece-model", corpus / "sp.model"]
    check_refused(["show-masks", corpus / "bin", "--masker", "pmi", "--pmi-vocab", path, *words], path)


@pytest.mark.parametrize(
    "content", [gzip.compress(b"new york\n" * 1000, mtime=0)[:-5], b"new york\n" * 100 + b"\xff\n"], ids=["gzip", "utf-8"]
)
def test_text(content, corpus, tmp_path):
    path, out = tmp_path / "text", tmp_path / "list"
    path.write_bytes(content)
    check_refused(["pmi", "build", path, "--output", out, "--temp-dir", tmp_path], path)
    check_refused(["pmi", "stats", corpus / "phrases.txt", "--text", path], path)
    assert not out.exists()


PARAMETERS = [
    {"name": "fc1.weight", "shape": [3, 4], "covered": True},
    {"name": "fc1.bias", "shape": [4], "covered": False, "no_gradient": True},
]


def mask_file(manifest, kind="mask"):
    metadata = {"maskplugins": kind, "version": "1", "manifest": json.dumps(manifest)}
    return save({"fc1.weight": np.eye(3, 4) > 0}, metadata)


MASKS = {
    "empty": b"",
    "a pickle": b"\x80\x02}.",
    "truncated": mask_file({"parameters": PARAMETERS, "reserve_p": 0.25})[:-3],
    "no metadata": save({"fc1.weight": np.eye(3, 4) > 0}),
    "another kind": mask_file({"parameters": PARAMETERS, "reserve_p": 0.25}, kind="x"),
    "another manifest": mask_file([1, 2]),
    "another shape": mask_file({"parameters": [{**PARAMETERS[0], "shape": [4, 3]}, PARAMETERS[1]], "reserve_p": 0.25}),
    "a tensor that is not listed": mask_file({"parameters": PARAMETERS[1:], "reserve_p": 0.3}),
}


@pytest.mark.parametrize("name", MASKS)
def test_mask_files(name, tmp_path):
    path = tmp_path / "mask"
    path.write_bytes(MASKS[name])
    check_refused(["fisher", "show", "--mask", path], path)
    check_refused(["fisher", "select", "--fisher", path, "--mask", tmp_path / "out", "--reserve-p", 0.3], path)


@pytest.fixture(scope="module")
def exported(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    words = ["--bpe", "sentencepiece", "--sentencepiece-model", corpus / "sp.model"]
    harness.train(corpus / "bin", folder, "--max-update", 1, *words)
    main(["export-hf", str(folder / "checkpoint_last.pt"), str(folder / "hf")])
    return folder / "hf"


WORDS = "roberta.embeddings.word_embeddings.weight"


def weights(change):
    return lambda path: path.write_bytes(save({**(found := load_file(path)), WORDS: change(found[WORDS])}))


FOLDERS = {
    "no config": ("config.json", lambda path: path.unlink()),
    "a truncated config": ("config.json", lambda path: path.write_text('{"model_type": "rob')),
    "another model": ("config.json", lambda path: path.write_text(path.read_text().replace('"roberta"', '"bert"'))),
    "no weights": ("model.safetensors", lambda path: path.unlink()),
    "truncated weights": ("model.safetensors", lambda path: path.write_bytes(path.read_bytes()[:-100])),
    "NaN weights": ("model.safetensors", weights(lambda table: table * np.float32("nan"))),
    "another shape": ("model.safetensors", weights(lambda table: table[:, :5].copy())),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_of_transformers(name, exported, tmp_path):
    file, edit = FOLDERS[name]
    shutil.copytree(exported, tmp_path / "hf")
    edit(tmp_path / "hf" / file)
    check_refused(["import-hf", tmp_path / "hf", tmp_path / "out"], tmp_path / "hf")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place, text", [("empty", None), ("fails", "import os\nos.nothing\n"), ("syntax", "x = (\n")])
def test_plug_ins(place, text, tmp_path, monkeypatch):
    """``--user-dir``: the error of another author's code is named."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / f"plug_in_{place}_{tmp_path.name}"
    if text:
        folder.mkdir()
        (folder / "__init__.py").write_text(text)
    check_refused(["show-masks", "data", "--user-dir", folder], folder)
