"""``fairseq-train`` killed, or out of disk, while it saves: no half checkpoint, and the end is that of an undisturbed run."""

import errno
import os
import random
import signal
import time

import harness
import moments
import pytest
from choose import SEED, choose
from forked import Forked

OPTIONS = ["--max-update", 4, "--save-interval-updates", 2, "--num-workers", 1, "--random-token-prob", 0.1]


def command(inputs, folder, *options):
    return harness.train_command(inputs.data, folder, *OPTIONS, *options)


class Run(dict):
    """An undisturbed run: weights by update, and what it did to files."""

    def __init__(self, inputs, folder):
        done = moments.watch(command(inputs, folder), folder)
        assert done.returncode == 0, done.text
        self.events = done.events
        for path in folder.glob("*.pt"):
            self[update_of(path)] = harness.load_weights(path)


def update_of(path):
    import torch

    harness.load_weights(path)
    return torch.load(path)["optimizer_history"][-1]["num_updates"]


@pytest.fixture(scope="module")
def whole(inputs, tmp_path_factory):
    return Run(inputs, tmp_path_factory.mktemp("whole") / "run")


def check(folder, whole):
    """Every checkpoint can be read and is the undisturbed run's at that update; returns what else is in the folder."""
    import torch

    rest = set()
    for path in folder.iterdir() if folder.exists() else ():
        if path.suffix != ".pt":
            rest.add(path.name)
            continue
        found, expected = harness.load_weights(path), whole[update_of(path)]
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in found), path
    assert all(name.endswith(".part") or name == "dummy" for name in rest), rest
    return rest


def check_end(inputs, folder, whole):
    """Started again it ends as if nothing had happened, and cleans up."""
    harness.run(command(inputs, folder), check=True)
    assert not check(folder, whole)
    assert {path.name for path in folder.iterdir()} == {
        *(f"checkpoint_{name}.pt" for name in ("1_2", "1_4", "best", "last"))
    }
    assert update_of(folder / "checkpoint_last.pt") == 4


def at(call, name, occurrence=1):
    """Kill at the n-th such call on a file of that name."""
    seen = []

    def strike(event):
        if event.call == call and os.path.basename(event.path) == name:
            seen.append(event)
            return moments.KILL if len(seen) == occurrence else None

    return strike


def test_killed_while_it_saves(inputs, whole, tmp_path):
    """In ``torch.save``, before the rename, between a checkpoint and its copy, and in the copy, one after another."""
    folder = tmp_path / "run"
    writes = sum(event.call == "write" and event.path.endswith("checkpoint_1_2.pt") for event in whole.events)
    for strike in (
        at("write", "checkpoint_1_2.pt", choose("torch.save", range(2, writes + 1), 1)[0]),
        at("rename", "checkpoint_1_2.pt"),
        at("sendfile", "checkpoint_last.pt"),
        at("rename", "checkpoint_last.pt", 2),
        at("sendfile", "checkpoint_best.pt"),
    ):
        done = moments.watch(command(inputs, folder), folder, strike)
        assert done.returncode == -signal.SIGKILL, done.text
        check(folder, whole)
    check_end(inputs, folder, whole)


@pytest.mark.parametrize("name", ["checkpoint_1_4.pt", "checkpoint_last.pt"])
def test_full_disk(name, inputs, whole, tmp_path):
    """In ``torch.save`` of the second checkpoint, or in its copy; with the space back it goes on from the first."""
    folder = tmp_path / "run"
    seen = []

    def strike(event):
        saved = event.path.endswith("checkpoint_1_4.pt") and event.call.startswith("rename")
        begun = event.path.endswith(name) and event.call in ("write", "sendfile") and (seen or name != "checkpoint_last.pt")
        if saved or (begun and not seen):
            seen.append(event)
        return errno.ENOSPC if seen and not saved and event.needs_space else None

    done = moments.watch(command(inputs, folder), folder, strike)
    lines = done.text.strip().splitlines()
    assert done.returncode == 1 and "Traceback" not in done.text
    assert lines[-1].startswith(f"fairseq_maskplugins: {folder / name}: can't write it: No space left on device; what")
    assert not check(folder, whole)
    assert update_of(folder / "checkpoint_last.pt") == 2
    check_end(inputs, folder, whole)


def test_a_write_that_fails_once(inputs, whole, tmp_path):
    """fairseq tries again, and would leave what the first try wrote in front of the second's checkpoint."""
    folder = tmp_path / "run"
    failed = []

    def strike(event):
        if event.call == "write" and event.path.endswith("checkpoint_1_2.pt") and len(failed) < 5:
            failed.append(event)
            return errno.EIO if len(failed) == 5 else None

    done = moments.watch(command(inputs, folder), folder, strike)
    assert done.returncode == 0 and len(failed) == 5
    assert not check(folder, whole)


@pytest.mark.slow
def test_killed_at_every_moment(inputs, whole, tmp_path):
    """Of the many writes of ``torch.save`` a few; all other moments."""
    folder = tmp_path / "run"
    writes = [event.number for event in whole.events if event.call == "write" and event.path.endswith(".pt")]
    others = [event.number for event in whole.events if event.number not in writes]
    for moment in choose("training", writes, 8, always=others):
        folder = tmp_path / str(moment)
        done = moments.watch(command(inputs, folder), folder, moments.kill_at(moment))
        assert done.returncode == -signal.SIGKILL, done.text
        check(folder, whole)
        check_end(inputs, folder, whole)


@pytest.mark.slow
def test_killed_at_random_times(inputs, whole, tmp_path):
    """Wherever it happens to be: importing, building the model, reading, in an update; again and again."""
    folder = tmp_path / "run"
    begin = time.monotonic()
    harness.run(command(inputs, tmp_path / "timed"), check=True)
    length = time.monotonic() - begin
    rng = random.Random(f"{SEED} times")
    for _ in range(12):
        process = Forked(command(inputs, folder))
        delay = rng.uniform(0, length)
        try:
            process.process.join(delay)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        text = process.read()
        assert process.returncode in (0, -signal.SIGKILL), text
        print(f"MASKPLUGINS_FAULT_SEED={SEED}: after {delay:.2f} s of {length:.2f} s: {process.returncode}")
        check(folder, whole)
    check_end(inputs, folder, whole)
