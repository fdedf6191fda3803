"""Files that are there whole or not at all."""

import contextlib
import errno
import os
import platform
import re
import secrets
import shutil
from typing import Dict, Iterator, Tuple, Type

from .errors import UsageError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_LOCK = ".fairseq_maskplugins-lock"
_NAME = re.compile(r".+\.[0-9a-f]{8}\.part")
_LONGEST_NAME = 100  # bytes that a temporary name takes over: file systems allow 255, or 143 where they encrypt names


@contextlib.contextmanager
def working_folder(place: str) -> Iterator[str]:
    """A folder ``PLACE.XXXXXXXX.part`` to work in, which is gone at the end of the block. A long name is cut.

    A killed process leaves its folder. The next that makes one beside it removes it: a file in each is locked for as long
    as its process lives, and names its machine, as the locks of some network file systems reach no further.

    Raises:
        OSError: it can't be made.
    """
    remove_abandoned(os.path.dirname(os.path.abspath(place)))
    folder, lock = _make_locked(place)
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(lock)


def _make_locked(place: str) -> Tuple[str, int]:
    while True:
        folder = os.path.join(os.path.dirname(place), f"{_cut(os.path.basename(place))}.{secrets.token_hex(4)}.part")
        os.mkdir(folder)
        try:
            lock = os.open(os.path.join(folder, _LOCK), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileNotFoundError:  # another process took it for an abandoned one before it was locked
            continue
        except BaseException:
            os.rmdir(folder)
            raise
        # of a file system that does not lock, or a full disk, which shows soon enough
        with contextlib.suppress(OSError):
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
            os.write(lock, platform.node().encode())
        if os.path.exists(os.path.join(folder, _LOCK)):
            return folder, lock
        os.close(lock)


def _cut(name: str) -> str:
    """A name, or the beginning of a long one with its ending, by which libraries tell what to write."""
    if len(os.fsencode(name)) <= _LONGEST_NAME:
        return name
    stem, ending = os.path.splitext(name)
    ending = ending if len(os.fsencode(ending)) <= 20 else ""
    # not in the middle of a character: some file systems take no name that is not UTF-8
    begin = os.fsencode(stem)[: _LONGEST_NAME - len(os.fsencode(ending))].decode("utf-8", "ignore")
    return (begin or "file") + ending


def remove_abandoned(above: str) -> None:
    """Remove what killed processes left of their :func:`working_folder` in a folder."""
    try:
        found = [os.path.join(above, entry) for entry in os.listdir(above) if _NAME.fullmatch(entry)]
    except OSError:
        return
    for folder in found if fcntl is not None else ():
        with contextlib.suppress(OSError):
            if not os.listdir(folder):  # killed before it could lock it
                os.rmdir(folder)
                continue
            with open(os.path.join(folder, _LOCK)) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails where it is held
                if lock.read() in ("", platform.node()):
                    _remove(folder)


def _remove(folder: str) -> None:
    """Remove a folder, the lock last: a removal that is cut short leaves what the next one finds."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name != _LOCK:
                os.unlink(entry.path)
        os.unlink(os.path.join(folder, _LOCK))
        os.rmdir(folder)


def is_special(path: str) -> bool:
    """Whether a device or a pipe is there."""
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def require_file(path: str, option: str = "") -> None:
    """Refuse a device or a pipe in the place of a file that is read, before it is opened: a pipe may let us wait without
    end, a device may have none, and what is read from either is not there for the next process that reads.

    Args:
        path: the file; one that is missing, or a folder, is left to whoever opens it.
        option: what comes before it in the line.

    Raises:
        UsageError: names it.
    """
    if is_special(path):
        raise UsageError(f"{option}{path}: must be a file, not a device or a pipe")


def find_place(path: str) -> str:
    """Where a file that is replaced whole really goes: links are followed, so that /dev/stdout stays what it is.

    Raises:
        UsageError: a device or a pipe is there, which the renamed file would take the place of; or the name is too long.
    """
    _refuse_long(path)
    if is_special(path):
        raise UsageError(f"{path}: is a device or a pipe; output goes to a file, which is replaced whole")
    return os.path.realpath(path)


def _refuse_long(path: str) -> None:
    """Refuse what no file can be called, before the work for it: whether it exists says nothing of that."""
    try:
        os.lstat(path)
    except ValueError:
        raise UsageError(f"{path}: can't write it: no file's name holds a NUL") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(f"{path}: can't write it: {error.strerror}") from None


@contextlib.contextmanager
def replacing(path: str, also: Tuple[Type[Exception], ...] = (), follow: bool = True) -> Iterator[str]:
    """A name to write to; at the end of the block the file is flushed to the disk and renamed to ``path``.

    Where the block fails, nothing is left and what was at ``path`` stays. The name is in a folder of its own beside it,
    as libraries may use temporary names themselves. ::

        with replacing("table.md") as temporary:
            Path(temporary).write_text("...")

    Args:
        path: where the file goes; what is there is replaced.
        also: errors besides ``OSError`` with which a library says that it can't write.
        follow: where ``path`` is a link, replace what it leads to; else the link itself.

    Raises:
        UsageError: it can't be written, or is no file; names ``path`` and the reason.
    """
    place = find_place(path) if follow else os.path.abspath(path)
    try:
        with working_folder(place) as folder:
            temporary = os.path.join(folder, _cut(os.path.basename(place)))
            yield temporary
            with open(temporary, "rb+") as file:
                # a library may make its files private; as any other, this one is for whom the umask lets
                os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode & 0o777 | os.stat(folder).st_mode & 0o666)
                os.fsync(file.fileno())
            os.replace(temporary, place)
    except (OSError, *also) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise UsageError(f"{path}: can't write it: {reason}") from None


def write_file(path: str, content: bytes) -> None:
    """Write a file whole or not at all; raises as :func:`replacing` does."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(content)


def write_folder(path: str, files: Dict[str, bytes]) -> None:
    """Write a folder whole or not at all: to a temporary name beside it first.

    Args:
        path: must not exist, or be an empty folder.
        files: content by name.

    Raises:
        UsageError: there is something already, or it can't be written; names ``path`` and the reason.
    """
    check_free(path)
    place = os.path.abspath(path)
    try:
        with working_folder(place) as folder:
            temporary = os.path.join(folder, _cut(os.path.basename(place)))
            os.mkdir(temporary)
            for name, content in files.items():
                with open(os.path.join(temporary, name), "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            os.rename(temporary, path)
    except OSError as error:
        raise UsageError(f"{path}: can't write it: {error.strerror or error}") from None


def check_free(path: str) -> None:
    """Refuse a path where a new folder can't be put: it holds something, its name is too long, or the folder above does
    not exist."""
    _refuse_long(path)
    above = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(above):
        raise UsageError(f"{path}: the folder {above} does not exist")
    remove_abandoned(above)
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise UsageError(f"{path}: must not exist or be an empty folder")
