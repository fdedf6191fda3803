"""Files that are there whole or not at all."""

import os
import shutil
from contextlib import contextmanager
from typing import Dict, Iterator, Tuple, Type

from .errors import UsageError


def find_place(path: str) -> str:
    """Where a file that is replaced whole really goes: links are followed, so that /dev/stdout stays what it is.

    Raises:
        UsageError: a device or a pipe is there, which the renamed file would take the place of.
    """
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise UsageError(f"{path}: is a device or a pipe; output goes to a file, which is replaced whole")
    return os.path.realpath(path)


@contextmanager
def replacing(path: str, also: Tuple[Type[Exception], ...] = ()) -> Iterator[str]:
    """A temporary name beside ``path`` to write to; at the end of the block the file is flushed to the disk and renamed.

    Where the block fails, nothing is left and what was at ``path`` stays. ::

        with replacing("table.md") as temporary:
            Path(temporary).write_text("...")

    Args:
        path: where the file goes; what is there is replaced.
        also: errors besides ``OSError`` with which a library says that it can't write.

    Raises:
        UsageError: it can't be written, or is no file; names ``path`` and the reason.
    """
    place = find_place(path)
    temporary = f"{place}.{os.getpid()}.part"  # not by tempfile: those files are private, and these take the umask
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except (OSError, *also) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise UsageError(f"{path}: can't write it: {reason}") from None
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


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
    temporary = f"{os.path.abspath(path)}.{os.getpid()}.part"
    try:
        os.mkdir(temporary)
        for name, content in files.items():
            with open(os.path.join(temporary, name), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        os.rename(temporary, path)
    except OSError as error:
        raise UsageError(f"{path}: can't write it: {error.strerror or error}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_free(path: str) -> None:
    """Refuse a path where a new folder can't be put: it holds something, or the folder above does not exist."""
    above = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(above):
        raise UsageError(f"{path}: the folder {above} does not exist")
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise UsageError(f"{path}: must not exist or be an empty folder")
