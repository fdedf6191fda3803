"""Atomic file writes."""

import contextlib
import os
import secrets
import shutil
from typing import Dict, Iterator, Optional, Tuple, Type

from .errors import UsageError, one_line


@contextlib.contextmanager
def replacing(path: str, also: Tuple[Type[Exception], ...] = ()) -> Iterator[str]:
    """Yield a temporary name beside ``path`` to write to, and rename the file to ``path`` at the end of the block.

    If the block fails, the temporary file is removed, ``path`` stays as it was, and a :class:`UsageError` names the reason. A
    symlink is followed. ``also``: errors besides ``OSError`` by which a library reports that it cannot write.
    """
    place = os.path.realpath(path)
    if os.path.exists(place) and not os.path.isfile(place):  # renaming would take the place of /dev/null
        raise UsageError(f"{path}: can't write it: it is not a regular file")
    stem, ending = os.path.splitext(place)  # libraries choose a format by the ending
    temporary = f"{stem}.{secrets.token_hex(4)}.part{ending}"
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.umask(umask := os.umask(0))
        os.chmod(temporary, 0o666 & ~umask)  # safetensors makes files private
        os.replace(temporary, place)
    except (OSError, *also) as error:
        raise UsageError(f"{path}: can't write it: {reason_of(error)}") from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def reason_of(error: Optional[BaseException]) -> str:
    """The operating system's reason, also where a library has raised an error of its own in place of it."""
    cause = error
    while cause is not None and not getattr(cause, "strerror", None):
        cause = cause.__cause__ or cause.__context__
    return cause.strerror if isinstance(cause, OSError) else one_line(error, 200)


def write_file(path: str, content: bytes) -> None:
    """Write a file atomically; raises as :func:`replacing` does."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(content)


def write_folder(path: str, files: Dict[str, bytes]) -> None:
    """Write a new folder (``path`` must not exist, or be empty) atomically, from file contents by name."""
    check_free(path)
    temporary = f"{os.path.abspath(path)}.{secrets.token_hex(4)}.part"
    try:
        os.mkdir(temporary)
        for name, content in files.items():
            with open(os.path.join(temporary, name), "wb") as file:
                file.write(content)
        os.rename(temporary, path)
    except OSError as error:
        raise UsageError(f"{path}: can't write it: {reason_of(error)}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_free(path: str) -> None:
    """Refuse an output folder that already holds something, or whose parent does not exist."""
    above = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(above):
        raise UsageError(f"{path}: the folder {above} does not exist")
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise UsageError(f"{path}: must not exist or be an empty folder")
