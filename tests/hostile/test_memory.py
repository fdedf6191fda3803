"""Pickles in checkpoints that would take memory their file does not have, or time without end, in every torch."""

import collections
import enum
import io

import files
import numpy as np
import pickles
import pytest
import torch
from guarded import check_line, guarded

import fairseq_maskplugins  # noqa: F401  (registers)
from fairseq_maskplugins.checkpoints import allow_in_checkpoints, explain_reading, read_checkpoint


def read(content):
    with explain_reading("model.pt"):
        return read_checkpoint(io.BytesIO(content))


def check_refused(content):
    outcome = guarded(read, content, seconds=60)
    check_line(outcome, "model.pt: ")
    assert outcome.megabytes < 200, outcome


@pytest.mark.parametrize("kind", [kind for kind in pickles.MEMORY if kind != "a name of a megabyte above a table"])
def test_memory(kind):
    check_refused(pickles.as_file(pickles.MEMORY[kind]))
    check_refused(pickles.as_old_file(pickles.MEMORY[kind]))


def test_names_are_cut():
    """It is harmless, and read."""
    outcome = guarded(read, pickles.as_file(pickles.MEMORY["a name of a megabyte above a table"]), seconds=60)
    assert outcome.kind == "done" and outcome.megabytes < 200, outcome


@pytest.mark.parametrize("kind", pickles.ENDLESS)
def test_endless(kind):
    check_refused(pickles.as_file(pickles.ENDLESS[kind]))


@pytest.mark.parametrize("kind", pickles.OLD)
def test_old_files(kind):
    check_refused(pickles.OLD[kind])


def test_a_tar_file_by_another_name():
    """torch tries to unpack one first, into the temporary folder, whatever the name of its first part is."""
    content = bytearray(files.tar_of(b"x"))
    content[257:265] = bytes(8)
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])
    check_line(guarded(read, bytes(content)), "model.pt: refused to load this checkpoint: it is a tar file")


def test_two_directories():
    content = files.saved({"x": torch.zeros(1)})
    at = content.rindex(b"PK\x06\x07") + 8
    check_line(guarded(read, content[:at] + (0).to_bytes(8, "little") + content[at + 8 :]), "two zip directories")


def test_keys_that_checkpoints_have():
    state = {
        None: 1,
        True: 2,
        7: collections.Counter({"a": 3}),
        -1.5: 4,
        "x": {("a", 1), (), 3},
        b"x": 5,
        torch.float16: 6,
        np.int64(9): 7,
        (1, "b"): 8,
    }
    found = read(files.saved(state))
    assert found == state and list(map(type, found)) == list(map(type, state))


class Colour(enum.Enum):
    RED = 1


class Pair:
    """Made by a call with arguments, and filled."""

    def __init__(self, one, other):
        self.one, self.other = one, other

    def __reduce__(self):
        return Pair, (self.one, self.other), {"more": 3}


@pytest.mark.parametrize("by_torch", [False, True])
def test_what_others_allowed(by_torch):
    """With ``allow_in_checkpoints``, and where torch reads also what another plug-in told torch itself."""
    if by_torch and not hasattr(torch.serialization, "get_safe_globals"):
        pytest.skip("older torch has no list of its own")
    content = files.saved(
        {"pair": Pair([1], torch.ones(2)), Colour.RED: "red", "args": files.namespace(pair=Pair(1, 2))}
    )
    outcome = guarded(read, content)
    check_line(outcome, "refused to load this checkpoint: it holds test_memory.")

    def allow_and_read():
        allow = torch.serialization.add_safe_globals if by_torch else (lambda found: allow_in_checkpoints(*found))
        allow([Pair, Colour])
        found = read(content)
        return found["pair"].more, found["pair"].other.tolist(), found[Colour.RED], found["args"].pair.other

    assert guarded(allow_and_read)[:2] == ("done", "(3, [1.0, 1.0], 'red', 2)")


def test_torch_stays_in_charge(monkeypatch):
    """An environment variable makes torch load anything, where it isn't told that weights alone are wanted."""
    if not hasattr(torch.serialization, "get_safe_globals"):
        pytest.skip("older torch has no protection of its own")
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    seen, load = [], torch.load
    monkeypatch.setattr(torch, "load", lambda *args, **options: seen.append(options) or load(*args, **options))
    assert read(files.saved({"x": 1})) == {"x": 1}
    assert seen[0]["weights_only"] is True and "pickle_module" not in seen[0]
