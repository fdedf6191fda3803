"""``fairseq-train`` killed, or out of disk, while it saves: no half checkpoint, and the end is that of an undisturbed run."""

import errno
import os
import random
import shutil
import signal
import time

import fault_folders as folders
import fault_moments as moments
import fault_prepare as prepare
import harness
import pytest
from fault_choice import SEED, choose
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


@pytest.mark.parametrize("name", ["checkpoint_1_4.pt", "checkpoint_best.pt"])
def test_full_disk(name, inputs, whole, tmp_path):
    """In ``torch.save`` of the second checkpoint, or in its copy; with the space back it goes on from the first."""
    folder = tmp_path / "run"
    second, full = [], []

    def strike(event):
        second.extend([event] * event.path.endswith("checkpoint_1_4.pt"))
        full.extend([event] * (bool(second) and event.path.endswith(name) and event.call in ("write", "sendfile")))
        return errno.ENOSPC if full and event.needs_space else None

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


@pytest.mark.parametrize("exists", [True, False])
def test_read_only_save_dir(exists, inputs, tmp_path):
    folder = tmp_path / "above" / "run"
    (folder if exists else folder.parent).mkdir(parents=True)
    (folder if exists else folder.parent).chmod(0o555)
    process = Forked(command(inputs, folder), prepare=prepare.obey_permissions)
    text = process.read()
    (folder if exists else folder.parent).chmod(0o755)
    assert process.returncode == 1 and "Traceback" not in text
    assert (
        text.strip().splitlines()[-1]
        == f"fairseq_maskplugins: --save-dir {folder}: can't write there: Permission denied"
    )


def test_another_run_in_the_same_folder(inputs, whole, tmp_path):
    """While one saves, a second one runs from beginning to end: neither writes into the other's files."""
    folder = tmp_path / "run"
    saving = [event.number for event in whole.events if "checkpoint" in event.path]
    moment, inner = choose("two runs", saving, 1)[0], []

    def strike(event):
        if event.number == moment:
            inner.append(harness.run(command(inputs, folder)))

    done = moments.watch(command(inputs, folder), folder, strike)
    assert (done.returncode, inner[0].returncode) == (0, 0)
    assert not check(folder, whole)
    assert update_of(folder / "checkpoint_last.pt") == 4


def test_data_removed_while_it_trains(inputs, whole, tmp_path):
    shutil.copytree(inputs.data, tmp_path / "bin")
    own = inputs._replace(corpus=tmp_path)

    def strike(event):
        if event.call.startswith("rename") and event.path.endswith("checkpoint_1_2.pt"):
            shutil.rmtree(tmp_path / "bin")

    done = moments.watch(command(own, tmp_path / "run"), tmp_path / "run", strike)
    assert done.returncode == 0 and not (tmp_path / "bin").exists()
    assert not check(tmp_path / "run", whole)


def check_input(inputs, folder, root, path, error):
    """One of the files that a resumed training reads can't be opened: one line, and what was saved stays."""
    strike = lambda event: error if event.path == path and not event.writes else None  # noqa: E731
    before = folders.read(folder)
    done = moments.watch(command(inputs, folder), root, strike, reads=True)
    lines = done.text.strip().splitlines()
    print(os.path.basename(path), errno.errorcode[error], done.returncode, lines[-1])
    assert done.returncode == 1 and "Traceback" not in done.text, done.text
    assert lines[-1].startswith("fairseq_maskplugins: ") and os.path.splitext(path)[0] in lines[-1]
    assert folders.read(folder) == before


@pytest.mark.parametrize("part", [pytest.param(part, marks=pytest.mark.slow if part else ()) for part in range(4)])
def test_inputs_that_vanish_or_are_refused(part, inputs, whole, tmp_path):
    folder = tmp_path / "run"
    harness.run(command(inputs, folder, "--max-update", 2), check=True)
    shutil.copytree(inputs.data, tmp_path / "bin")
    own = inputs._replace(corpus=tmp_path)
    read = [tmp_path / "bin" / name for name in ("dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx")]
    read.append(folder / "checkpoint_last.pt")
    cases = [(str(path), error) for path in read for error in (errno.ENOENT, errno.EACCES, errno.EIO)]
    random.Random(f"{SEED} inputs").shuffle(cases)
    for path, error in cases[:2] if not part else cases[2 + part - 1 :: 3]:
        check_input(own, folder, tmp_path, path, error)
    check_end(inputs, folder, whole)


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
