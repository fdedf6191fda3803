"""Wrong files for tools: each gets one line that names it. Checkpoints and Hugging Face folders have files of their own."""

import json
import shutil
import sys

import numpy as np
import pytest
from safetensors.numpy import save

from fairseq_maskplugins.cli import main
from fairseq_maskplugins.errors import UsageError


def check_refused(command, path):
    """One printable line, which names the file."""
    with pytest.raises(UsageError) as error:
        main([str(part) for part in command])
    assert str(error.value).isprintable() and str(path) in str(error.value), str(error.value)


DICTIONARIES = {
    "no count": lambda good: good + b"zebra\n",
    "a word twice": lambda good: good + b"zebra 5\nzebra 6\n",
    "not UTF-8": lambda good: good + b"\xff\xfe 5\n",
}


@pytest.mark.parametrize("name", DICTIONARIES)
def test_dictionaries(name, corpus, tmp_path):
    data = tmp_path / "bin"
    shutil.copytree(corpus / "bin", data)
    path = data / "dict.txt"
    path.write_bytes(DICTIONARIES[name](path.read_bytes()))
    check_refused(["show-masks", data, "--rows", 3, "--measure", 8], path)
    check_refused(["pmi", "stats", corpus / "phrases.txt", data, "--rows", 4], path)


LISTS = {"not UTF-8": b"new york\nof \xff\xfe the\n", "a score that is text": b"new york\tnew\n"}


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_phrases(name, corpus, tmp_path):
    path = tmp_path / "phrases.txt"
    path.write_bytes(LISTS[name])
    check_refused(["pmi", "stats", path], path)
    words = ["--bpe", "sentencepiece", "--sentencepiece-model", corpus / "sp.model"]
    check_refused(["show-masks", corpus / "bin", "--masker", "pmi", "--pmi-vocab", path, *words], path)


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


@pytest.mark.parametrize("place, text", [("empty", None), ("fails", "import os\nos.nothing\n"), ("syntax", "x = (\n")])
def test_plug_ins(place, text, tmp_path, monkeypatch):
    """``--user-dir``: the error of another author's code is named."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / f"plug_in_{place}_{tmp_path.name}"
    if text:
        folder.mkdir()
        (folder / "__init__.py").write_text(text)
    check_refused(["show-masks", "data", "--user-dir", folder], folder)
