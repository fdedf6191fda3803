"""Files that are there whole or not at all."""

import os
from contextlib import contextmanager
from typing import Iterator, Tuple, Type

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
