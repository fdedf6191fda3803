"""Shared fixtures: a small corpus of English-like prose, a sentencepiece model of it, and data that fairseq reads."""

import gc
import logging
import multiprocessing
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

# two processes with two threads each on two cores run several times slower than with one
os.environ.setdefault("OMP_NUM_THREADS", "1")

import harness  # noqa: E402
import torch  # noqa: E402

# what these ask hardly depends on which fairseq is installed: see the marker "once" in pyproject.toml
ONCE = {
    *("test_ablations.py", "test_corpora.py", "test_example_commands.py", "test_finetune_benchmark.py"),
    *("test_finetune_recipes.py", "test_finetune_tasks.py", "test_pretrain_24h.py", "test_should_you_mask.py", "test_squad.py"),
    *("test_doc_links.py", "test_docs.py", "test_docs_run.py", "test_packaging.py", "test_picture.py"),
    *("test_pmi_build.py", "test_pmi_chinese.py", "test_pmi_stats.py", "test_quickstart.py"),
    *("test_edges_masks.py", "test_edges_rates.py", "test_json.py", "test_wrong_files.py"),
    *("test_data_directories.py", "test_places.py"),
}


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.name in ONCE:
            item.add_marker("once")


@pytest.fixture(autouse=True)
def loggers_speak():
    """Programs that ran in this process before may have turned logging down or off."""
    logging.disable(logging.NOTSET)
    logging.root.setLevel(min(logging.root.level, logging.WARNING))
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.startswith("fairseq_maskplugins") and isinstance(logger, logging.Logger):
            logger.disabled = False
            logger.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def no_workers_left():
    """End the data workers of iterators that a test leaves. fairseq's tasks and iterators hold each other, so that Python's
    garbage collector ends them at some later time; it stops their queues first, and torch then waits five seconds for each
    worker to hear that it may go."""
    yield
    if any(process.daemon for process in multiprocessing.active_children()):
        from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

        for found in gc.get_objects():
            if type(found) is _MultiProcessingDataLoaderIter:
                found._shutdown_workers()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Folder with ``train.txt``, ``valid.txt``, their pieces (``.sp``), ``sp.model`` and ``bin`` (fairseq-preprocess)."""
    return harness.build_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def data_bin(corpus):
    return corpus / "bin"


@pytest.fixture(scope="session")
def mapnet_checkpoint(data_bin, tmp_path_factory):
    """Checkpoint of a tiny training with MAP-Net and sequences of up to 40 tokens."""
    folder = tmp_path_factory.mktemp("mapnet")
    harness.train(data_bin, folder, *harness.MAPNET)
    return folder / "checkpoint_last.pt"


@pytest.fixture
def mapnet_state(mapnet_checkpoint):
    return torch.load(mapnet_checkpoint, weights_only=False)
