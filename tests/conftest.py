"""Shared fixtures: a small corpus of English-like prose, a sentencepiece model of it, and data that fairseq reads."""

import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

# two processes with two threads each on two cores run several times slower than with one
os.environ.setdefault("OMP_NUM_THREADS", "1")

import harness  # noqa: E402


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Folder with ``train.txt``, ``valid.txt``, their pieces (``.sp``), ``sp.model`` and ``bin`` (fairseq-preprocess)."""
    return harness.build_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def data_bin(corpus):
    return corpus / "bin"
