"""Atomic file writes."""

import os
import resource
import signal

import numpy as np
import pytest

from fairseq_maskplugins.child_tuning import maskfile
from fairseq_maskplugins.errors import UsageError
from fairseq_maskplugins.files import check_free, replacing, write_file, write_folder


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def test_a_file_is_replaced_at_the_end(tmp_path):
    path = tmp_path / "out.html"
    path.write_text("old")
    before = os.umask(0o027)
    try:
        with replacing(str(path)) as temporary:
            write(temporary, "new")
            os.chmod(temporary, 0o600)  # as safetensors does
            assert path.read_text() == "old" and temporary.endswith(".html")
            assert os.path.dirname(temporary) == str(tmp_path)
    finally:
        os.umask(before)
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["out.html"]
    assert path.stat().st_mode & 0o777 == 0o640  # as any file that is written


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError])
def test_a_failure_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(UsageError if error is OSError else error) as raised:
        with replacing(str(path)) as temporary:
            write(temporary, "half")
            raise error(28, "no room")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["out"]
    if error is OSError:
        assert str(raised.value) == f"fairseq_maskplugins: {path}: can't write it: no room"


def test_the_reason_behind_a_librarys_error(tmp_path):
    """torch raises an error of its own while it handles the operating system's."""
    with pytest.raises(UsageError, match="out: can't write it: No space left on device$"):
        with replacing(str(tmp_path / "out"), also=(RuntimeError,)):
            try:
                raise OSError(28, "No space left on device")
            finally:
                raise RuntimeError("unexpected pos 768 vs 662")


def test_a_full_disk_is_one_line(tmp_path):
    """A limit on a file's size stands for the full disk; the library reports it by an error of its own."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        with pytest.raises(UsageError, match="/m: can't write it: .*[Ff]ile too large"):
            maskfile.write(str(tmp_path / "m"), "mask", {"a": np.zeros(5000, dtype=bool)}, {"parameters": []})
        with pytest.raises(UsageError, match="/folder: can't write it: File too large"):
            write_folder(str(tmp_path / "folder"), {"a": b"a", "b": bytes(5000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert os.listdir(tmp_path) == []


def test_links_are_followed(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    write_file(str(tmp_path / "link"), b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


def test_folders(tmp_path):
    path = tmp_path / "out"
    path.mkdir()
    write_folder(str(path), {"a": b"1", "b": b"2"})
    assert {p.name: p.read_bytes() for p in path.iterdir()} == {"a": b"1", "b": b"2"}
    assert os.listdir(tmp_path) == ["out"]
    with pytest.raises(UsageError, match="out: must not exist or be an empty folder"):
        write_folder(str(path), {})
    with pytest.raises(UsageError, match="the folder .*/nowhere does not exist"):
        check_free(str(tmp_path / "nowhere" / "out"))
