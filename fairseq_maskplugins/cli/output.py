"""Programs whose output nobody reads, or has no room. The recipes load this file by itself: it imports nothing of ours."""

import errno
import os
import sys
from typing import Any, Callable, Type

_OUTPUT = (errno.ENOSPC, errno.EPIPE, errno.EIO, errno.EBADF, errno.EFBIG)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def write_out(work: Callable[[], Any], failure: Type[SystemExit] = SystemExit) -> Any:
    """Do a program's work and write what it printed; returns what the work returns.

    Where whoever reads the output has seen enough, as ``head`` has, the program ends without a word, with exit status 1.

    Raises:
        SystemExit: the output can't be written; of the kind ``failure``, with the reason, unless nobody reads it.
    """
    try:
        try:
            found = work()
        except SystemExit as error:
            if not error.code:  # a text of help, say
                _flush()
            raise
        _flush()
        return found
    except OSError as error:
        if error.filename is not None or error.errno not in _OUTPUT:
            raise
        # what is left in the buffer has nowhere to go; Python would try once more when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())
        if error.errno == errno.EPIPE:
            raise SystemExit(1) from None
        raise failure(f"standard output: can't write it: {error.strerror}") from None
