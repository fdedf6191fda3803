"""Files are there whole or not at all."""

import fcntl
import os
import platform
import resource
import signal

import numpy as np
import pytest

from fairseq_maskplugins.child_tuning import maskfile
from fairseq_maskplugins.errors import UsageError
from fairseq_maskplugins.files import (
    check_free,
    find_place,
    remove_abandoned,
    replacing,
    working_folder,
    write_file,
    write_folder,
)
from fairseq_maskplugins.maskers.pmi_vocab import load_phrases
from fairseq_maskplugins.pmi_build.build import write_list
from fairseq_maskplugins.pmi_build.score import Phrase


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def test_a_file_is_replaced_at_the_end(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")
    before = os.umask(0o027)
    try:
        with replacing(str(path)) as temporary:
            write(temporary, "new")
            assert path.read_text() == "old" and os.path.dirname(os.path.dirname(temporary)) == str(tmp_path)
    finally:
        os.umask(before)
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["out"]
    assert path.stat().st_mode & 0o777 == 0o640  # as any file that is written


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError])
def test_a_failure_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(UsageError if error is OSError else error) as raised:
        with replacing(str(path)) as temporary:
            write(temporary, "half")
            raise error("no\nroom")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["out"]
    if error is OSError:
        assert str(raised.value) == f"fairseq_maskplugins: {path}: can't write it: no room"


def test_a_full_disk_is_one_line(tmp_path):
    """A limit on a file's size stands for the full disk; the library reports it by an error of its own."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        with pytest.raises(UsageError, match="/m: can't write it: .*[Ff]ile too large"):
            maskfile.write(str(tmp_path / "m"), "mask", {"a": np.zeros(5000, dtype=bool)}, {"parameters": []})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert os.listdir(tmp_path) == []


def test_pipes_and_devices_stay_and_links_are_followed(tmp_path):
    """A renamed file would take the place of /dev/null, or of the link /dev/stdout, for every program."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(UsageError, match=f"/{name}: is a device or a pipe"):
            with replacing(str(tmp_path / name)) as temporary:
                write(temporary, "new")
        with pytest.raises(UsageError, match=f"/{name}: is a device or a pipe"):
            write_file(str(tmp_path / name), b"new")
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()
    (tmp_path / "file").write_text("old")
    (tmp_path / "other").symlink_to("file")
    with replacing(str(tmp_path / "other")) as temporary:
        write(temporary, "new")
    assert (tmp_path / "other").is_symlink() and (tmp_path / "file").read_text() == "new"
    write_file(str(tmp_path / "other"), b"page")
    assert (tmp_path / "other").is_symlink() and (tmp_path / "file").read_text() == "page"
    assert sorted(os.listdir(tmp_path)) == ["file", "link", "other", "pipe"]


def leave(folder, name, host):
    """What a process that was killed leaves."""
    (folder / name / "deep").mkdir(parents=True)
    (folder / name / "deep" / "half").write_text("half")
    if host is not None:
        (folder / name / ".fairseq_maskplugins-lock").write_text(host)
    return folder / name


def test_what_killed_processes_left_is_removed(tmp_path):
    """Nothing else is: what a living process holds, what is another machine's, what only has such a name."""
    gone = [leave(tmp_path, f"{name}.part", platform.node()) for name in ("out.0123abcd", "other file.00000000")]
    gone.append(leave(tmp_path, "early.0123abcd.part", ""))
    (tmp_path / "empty.0123abcd.part").mkdir()
    held = leave(tmp_path, "held.0123abcd.part", platform.node())
    stay = [held, leave(tmp_path, "elsewhere.0123abcd.part", "another-machine")]
    stay += [leave(tmp_path, "mine.0123abcd.part", None), leave(tmp_path, "mine.part", platform.node())]
    with open(held / ".fairseq_maskplugins-lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_file(str(tmp_path / "out"), b"new")
    assert sorted(path.name for path in stay) + ["out"] == sorted(os.listdir(tmp_path))
    assert all((path / "deep" / "half").exists() for path in stay)
    write_file(str(tmp_path / "out"), b"new")
    assert not held.exists()


def test_a_folder_is_held_while_it_is_worked_in(tmp_path):
    with working_folder(str(tmp_path / "place")) as folder:
        remove_abandoned(str(tmp_path))
        assert os.listdir(folder) == [".fairseq_maskplugins-lock"]
        with pytest.raises(KeyboardInterrupt):
            with working_folder(str(tmp_path / "place")) as other:
                assert other != folder
                raise KeyboardInterrupt
        assert [str(path) for path in tmp_path.iterdir()] == [folder]
    assert os.listdir(tmp_path) == []


def test_files_of_libraries_that_make_them_private_are_like_others(tmp_path):
    before = os.umask(0o027)
    try:
        with replacing(str(tmp_path / "out")) as temporary:
            write(temporary, "new")
            os.chmod(temporary, 0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640


def test_a_link_itself_can_be_replaced(tmp_path):
    (tmp_path / "pretrained").write_text("old")
    (tmp_path / "last").symlink_to("pretrained")
    with replacing(str(tmp_path / "last"), follow=False) as temporary:
        write(temporary, "new")
    assert (tmp_path / "pretrained").read_text() == "old"
    assert (tmp_path / "last").read_text() == "new" and not (tmp_path / "last").is_symlink()


LONG = {
    "255 letters": "a" * 255,
    "with an ending": "a" * 248 + ".txt.gz",
    "a long ending": "a." + "b" * 253,
    "characters of three bytes": "\u4e2d" * 85,
    "no UTF-8": "\udcff" * 255,
}


@pytest.mark.parametrize("name", LONG.values(), ids=LONG)
def test_long_names(name, tmp_path, monkeypatch):
    """What the file system takes we write, and find again where we are killed: a temporary name is no longer."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    path = str(tmp_path / name)
    mask = {"parameters": [{"name": "a", "shape": [1], "covered": True}], "reserve_p": 0.5}
    writers = [
        lambda: write_file(path, b"new"),
        lambda: maskfile.write(path, "mask", {"a": np.ones(1, dtype=bool)}, mask),
        lambda: write_list(path, [Phrase("new york", 1_000_000, 12)]),
    ]
    for writer in writers:
        writer()
        assert [os.fsencode(entry) for entry in os.listdir(tmp_path)] == [os.fsencode(name)]
        assert not name.endswith(".gz") or writer is not writers[-1] or open(path, "rb").read(2) == b"\x1f\x8b"
    assert load_phrases(path).count == 1 and len(os.listdir(tmp_path / "home" / "fairseq_maskplugins")) == 1
    os.unlink(path)
    write_folder(path, {"file": b"new"})
    assert os.listdir(path) == ["file"]
    with working_folder(path) as folder:
        pass
    (tmp_path / "home" / "fairseq_maskplugins").rename(folder)  # as a killed process leaves it
    (tmp_path / os.path.basename(folder) / ".fairseq_maskplugins-lock").write_text(platform.node())
    remove_abandoned(str(tmp_path))
    assert not os.path.exists(folder)


def test_names_that_are_too_long(tmp_path):
    """They are refused where a place is looked at, which is before the work."""
    path = str(tmp_path / ("a" * 256))
    for look in (find_place, check_free, lambda path: write_file(path, b"new")):
        with pytest.raises(UsageError, match="aaa: can't write it: File name too long"):
            look(path)
