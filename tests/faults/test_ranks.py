"""A rank, or a data worker, that is killed: the others end, with one line, and do not wait."""

import contextlib
import errno
import os
import signal
import time

import fault_moments as moments
import harness
import pytest
from forked import Forked


def rank_commands(inputs, folder, *options):
    shared = (
        f"--distributed-world-size 2 --distributed-init-method tcp://127.0.0.1:{harness.free_port()} "
        "--distributed-no-spawn --distributed-backend gloo --ddp-backend legacy_ddp"
    ).split()
    return [
        harness.train_command(inputs.data, folder / f"rank{rank}", *options, *shared, "--distributed-rank", rank)
        for rank in range(2)
    ]


def end_of(process, timeout=120):
    """Exit status and our line; fails where it waits for ever."""
    try:
        process.wait(timeout)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    text = process.read()
    said = [line for line in text.splitlines() if line.startswith("fairseq_maskplugins: ")]
    assert said, text
    # a data worker that lived may complain afterwards that whom it served has gone
    assert "Traceback" not in text[: text.index(said[0])], text
    return process.returncode, said[0]


def wait_for(ready, process, timeout=120):
    deadline = time.monotonic() + timeout
    while not ready():
        assert process.poll() is None and time.monotonic() < deadline, process.read()
        time.sleep(0.02)


def logged(process, text):
    with open(process.log, encoding="utf-8", errors="replace") as file:
        return text in file.read()


@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_is_killed(killed, inputs, tmp_path):
    ranks = [Forked(command) for command in rank_commands(inputs, tmp_path, "--max-epoch", 500, "--no-save")]
    try:
        wait_for(lambda: logged(ranks[0], "train_inner"), ranks[0])
    finally:
        os.killpg(ranks[killed].pid, signal.SIGKILL)
    status, line = end_of(ranks[1 - killed])
    assert status == 1
    assert line.startswith("fairseq_maskplugins: another rank has gone (connection ")
    ranks[killed].read()


def test_a_disk_that_is_full_for_one_rank_ends_both(inputs, tmp_path):
    options = ["--max-update", 400, "--save-interval-updates", 3]
    first, second = rank_commands(inputs, tmp_path, *options)
    other = Forked(second)
    out = tmp_path / "rank0"
    done = moments.watch(first, out, lambda event: errno.ENOSPC if event.call == "write" else None)
    assert done.returncode == 1 and "Traceback" not in done.text
    assert (
        done.text.strip()
        .splitlines()[-1]
        .startswith(f"fairseq_maskplugins: {out}/checkpoint_1_3.pt: can't write it: No")
    )
    status, line = end_of(other)
    assert status == 1 and "another rank has gone" in line


def test_a_mask_that_only_one_rank_can_read_ends_both(inputs, tmp_path):
    options = [
        "--optimizer",
        "child_tuning_adam",
        "--child-tuning-mode",
        "D",
        "--child-tuning-mask",
        inputs.folder / "mask",
    ]
    first, second = rank_commands(inputs, tmp_path, *options, "--max-update", 400, "--no-save")
    other = Forked(first)
    strike = lambda event: errno.ENOENT if event.path.endswith("/mask") else None  # noqa: E731
    done = moments.watch(second, inputs.folder, strike, reads=True)
    assert done.returncode == 1 and "Traceback" not in done.text
    line = done.text.strip().splitlines()[-1]
    assert line.startswith(f"fairseq_maskplugins: {inputs.folder / 'mask'}: can't read it")
    status, line = end_of(other)
    assert status == 1 and "another rank has gone" in line


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


@pytest.mark.parametrize("buffer", [10, 0])
def test_a_data_worker_is_killed(buffer, inputs, tmp_path):
    options = ["--num-workers", 2, "--max-epoch", 500, "--no-save", "--data-buffer-size", buffer]
    process = Forked(harness.train_command(inputs.data, tmp_path / "run", *options))
    try:
        wait_for(lambda: logged(process, "train_inner"), process)
        found = []

        def workers():
            found[:] = children(process.pid)
            return len(found) >= 2

        wait_for(workers, process)
        os.kill(found[0], signal.SIGKILL)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    status, line = end_of(process)
    assert status == 1
    assert line.startswith(f"fairseq_maskplugins: a data worker (process {found[0]}) has died")
