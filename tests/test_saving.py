"""What is said when a run can't go on, and saving a checkpoint. The runs themselves: ``faults/``."""

import io
import os
import signal

import pytest
import torch
from fairseq_maskplugins.saving import write
from fairseq_maskplugins.saving.endings import explain_failure, read_patience, restore_patience

from fairseq_maskplugins.errors import UsageError

WORKER = "fewer --num-workers need less of; run the same command again, it goes on from the last checkpoint"


@pytest.mark.parametrize(
    "message, expected",
    [
        (
            "DataLoader worker (pid 12) is killed by signal: Killed. ",
            "a data worker (process 12) has died (killed by signal: ",
        ),
        (
            "DataLoader worker (pid(s) 12, 13) exited unexpectedly",
            "a data worker (process 12, 13) has died (unexpectedly)",
        ),
        (
            "DataLoader worker (pid 7) exited unexpectedly with exit code 1. Details are lost due to multiprocessing.",
            "a data worker (process 7) has died (unexpectedly with exit code 1);",
        ),
        (
            "[../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:22",
            "another rank has gone (connection closed by peer): its own output says why; run the same command again",
        ),
        (
            "[gloo/transport/tcp/pair.cc:1] Read error: Connection reset by peer",
            "another rank has gone (connection reset by",
        ),
    ],
)
def test_what_has_gone(message, expected):
    said = explain_failure(message)
    assert said.startswith(expected) and "\n" not in said
    assert said.endswith(WORKER) == ("worker" in message)


@pytest.mark.parametrize(
    "message", ["CUDA out of memory", "Connection reset by peer", "size mismatch for gloo.weight", ""]
)
def test_other_errors_are_left_alone(message):
    assert explain_failure(message) is None


def test_a_write_that_fails_is_the_error_that_is_raised(tmp_path, monkeypatch):
    """The first of them, whatever comes after, and none of torch's own."""

    class Full(io.FileIO):
        left = 2

        def write(self, data):
            self.left -= 1
            if self.left < 0:
                raise OSError(28 if self.left == -1 else 5, "of the disk")
            return super().write(data)

    monkeypatch.setattr("builtins.open", Full)
    with pytest.raises(OSError) as raised:
        write.save([torch.zeros(5000)] * 3 + [torch.ones(5000)], str(tmp_path / "out"))
    assert raised.value.errno == 28
    monkeypatch.setattr(Full, "left", 10_000)
    write.save([torch.ones(5)], str(tmp_path / "out"))
    monkeypatch.undo()
    assert torch.load(tmp_path / "out")[0].tolist() == [1.0] * 5


def test_an_interrupt_waits_until_a_checkpoint_is_saved(tmp_path, monkeypatch):
    """Compiled code of torch would lose it, or make an error of another kind of it."""
    taken = []

    def interrupt(noting, data):
        taken.append(noting.file.write(data))
        os.kill(os.getpid(), signal.SIGINT)
        return taken[-1]

    monkeypatch.setattr(write._Noting, "write", interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            write.save([torch.ones(5)], str(tmp_path / "out"))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(taken) > 1 and torch.load(tmp_path / "out")[0].tolist() == [1.0] * 5


def test_a_worker_that_dies_while_its_batch_is_fetched(monkeypatch):
    """The connection to it breaks before torch is told of its death."""
    from multiprocessing.resource_sharer import _resource_sharer

    from fairseq_maskplugins.saving import register

    asked = []

    def fails():
        asked.append(None)
        if len(asked) == 3:
            raise RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed. ")

    monkeypatch.setattr("torch._C._error_if_any_worker_fails", fails)

    def main(cfg):
        _resource_sharer.get_connection(("/nowhere", 1))

    call = register._explain(lambda cfg, main: main(cfg))
    with pytest.raises(UsageError, match=r"a data worker \(process 12\) has died \(killed by signal: Killed\)"):
        call(None, main)

    def other(cfg):
        open("/nowhere/at/all")

    with pytest.raises(FileNotFoundError):
        call(None, other)


def test_a_copy_that_fails_leaves_what_was_there(tmp_path):
    """Whatever fairseq copies ``checkpoint_1_500.pt`` to ``checkpoint_last.pt`` with."""
    from fairseq_maskplugins.saving.register import _copy_whole

    def copy_half(source, target, overwrite=False):
        with open(target, "wb") as file:
            file.write(b"ne")
        raise OSError(28, "No space left on device", str(target))

    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "last").write_bytes(b"old")
    with pytest.raises(UsageError, match="last: can't write it: No space left on device"):
        _copy_whole(copy_half)(str(tmp_path / "new"), str(tmp_path / "last"), overwrite=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"new": b"new", "last": b"old"}


def test_what_early_stopping_has_seen():
    def counter():
        """Stands for fairseq's function, which counts in its attributes."""

    def fresh():
        """Of another process."""

    assert read_patience(None) is None and read_patience(counter) is None
    counter.best, counter.num_runs = 2, 3
    found = read_patience(counter)
    assert found == {"best": 2.0, "waited": 3} and restore_patience(fresh, found, "last.pt") == 3
    assert read_patience(fresh) == found
    assert restore_patience(None, found, "last.pt") == 3  # where another program trains
    for damaged in (
        3,
        {},
        {"best": 1.0},
        {**found, "best": "2"},
        {**found, "best": float("nan")},
        {**found, "waited": -1},
    ):
        with pytest.raises(
            UsageError, match="last.pt: its record of --patience must .*; --reset-meters starts to count anew"
        ):
            restore_patience(fresh, damaged, "last.pt")
    assert read_patience(fresh) == found
