"""Memory stays flat where data shards change with every epoch and several workers read them."""

import pytest
from memory import EPOCHS, OURS, WORKERS, measure, table
from watch import can_watch

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not can_watch(), reason="needs Linux' /proc")]


def test_memory_files_and_processes_are_flat_over_shards(tmp_path, capsys):
    """Four shards, eight epochs, four workers: what the whole tree of processes holds in epoch 8 is within 10% of what it
    held in epoch 2, with as many files open and processes running. fairseq keeps an epoch's workers for the next epoch,
    which here has data of its own: nine processes would become 33."""
    found = measure(tmp_path, *OURS)
    with capsys.disabled():
        print("\n" + table(found))
    assert list(found) == list(range(1, EPOCHS + 1))
    early, late = found[2], found[EPOCHS]
    for name in ("rss", "pss", "uss"):
        assert getattr(late, name) <= 1.1 * getattr(early, name), name
    assert late.processes <= early.processes and late.maps <= early.maps
    assert late.files <= 1.1 * early.files  # batches on their way from workers are files too
    assert late.processes <= 1 + 2 * WORKERS + 2  # training, maybe validation, and multiprocessing's trackers
