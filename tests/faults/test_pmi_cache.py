"""The cache of ``--pmi-vocab``: writers that are killed, find no room, or come at once; a list that vanishes."""

import errno
import os
import shutil
import signal
import sys

import fault_folders as folders
import fault_moments as moments
import fault_prepare as prepare
import harness
import pytest
from fault_choice import choose
from forked import Forked

CACHE = "phrases.txt.fold.pmi-cache"


@pytest.fixture
def place(corpus, tmp_path):
    """A folder of its own for the list, and another for the caches that can't stand beside it."""
    (tmp_path / "lists").mkdir()
    shutil.copy(corpus / "phrases.txt", tmp_path / "lists")
    return tmp_path / "lists"


def command(corpus, place):
    options = ["--masker", "pmi", "--pmi-vocab", place / "phrases.txt", "--measure", 20, "--rows", 2]
    options += ["--bpe", "sentencepiece", "--sentencepiece-model", corpus / "sp.model"]
    main = [sys.executable, "-m", "fairseq_maskplugins.cli", "show-masks"]
    return [*main, *map(str, [corpus / "bin", *options])]


def settings(place):
    return {"cwd": harness.ROOT, "env": {"XDG_CACHE_HOME": str(place.parent / "user")}}


def watch(corpus, place, strike=lambda event: None):
    return moments.watch(command(corpus, place), place, strike, **settings(place))


def rows(text):
    return [line for line in text.splitlines() if line.startswith("row ")]


def test_killed_or_out_of_room(corpus, place):
    whole = watch(corpus, place)
    assert whole.returncode == 0 and rows(whole.text)
    expected = folders.read(place)
    assert sorted(expected) == sorted(["phrases.txt", CACHE])
    renamed = [event.number for event in whole.events if event.call == "rename"]
    for moment in choose("pmi cache", range(1, len(whole.events) + 1), 2, always=renamed):
        (place / CACHE).unlink(missing_ok=True)
        assert watch(corpus, place, moments.kill_at(moment)).returncode == -signal.SIGKILL
        folders.assert_whole(place, ["phrases.txt", CACHE], {"phrases.txt": expected["phrases.txt"]}, expected)
    done = watch(corpus, place)
    assert done.returncode == 0 and rows(done.text) == rows(whole.text) and folders.read(place) == expected

    (place / CACHE).unlink()
    done = watch(corpus, place, moments.full_from(choose("pmi cache full", range(1, 6), 1)[0]))
    assert done.returncode == 0 and rows(done.text) == rows(whole.text)
    assert os.listdir(place) == ["phrases.txt"]
    assert [path.suffix for path in (place.parent / "user" / "fairseq_maskplugins").iterdir()] == [".pmi-cache"]


def test_many_at_once(corpus, place):
    processes = [Forked(command(corpus, place), **settings(place)) for _ in range(4)]
    texts = [process.read() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, texts
    assert len({tuple(rows(text)) for text in texts}) == 1 and rows(texts[0])
    assert sorted(os.listdir(place)) == sorted(["phrases.txt", CACHE])
    assert sum("phrases of" in text for text in texts) <= 1  # the others wait, and read what the first has built


def test_a_folder_that_is_read_only(corpus, place):
    place.chmod(0o555)
    try:
        process = Forked(command(corpus, place), prepare=prepare.obey_permissions, **settings(place))
        text = process.read()
    finally:
        place.chmod(0o755)
    assert process.returncode == 0 and rows(text), text
    assert os.listdir(place) == ["phrases.txt"]
    assert len(os.listdir(place.parent / "user" / "fairseq_maskplugins")) == 1


@pytest.mark.parametrize("occurrence", [1, 2])
@pytest.mark.parametrize("error", [errno.ENOENT, errno.EACCES])
def test_a_list_that_vanishes(error, occurrence, corpus, place):
    """Before it is read, and between that and its locking."""
    seen = []

    def strike(event):
        if event.path.endswith("phrases.txt"):
            seen.append(event)
            return error if len(seen) >= occurrence else None

    done = moments.watch(command(corpus, place), place, strike, reads=True, **settings(place))
    assert len(seen) >= occurrence
    if occurrence == 1:
        assert done.returncode == 1 and "Traceback" not in done.text
        last = done.text.strip().splitlines()[-1]
        assert last.startswith(f"fairseq_maskplugins: --pmi-vocab {place / 'phrases.txt'}: can't read the list"), last
    else:
        assert done.returncode == 0 and rows(done.text)
