"""How a command begins and how an interrupt ends it (nothing is imported here that takes time)."""

import atexit
import contextlib
import logging
import os
import signal
import sys
from typing import Iterator


def is_command() -> bool:
    """Whether this process is ``maskplugins``, or ``python -m`` that is about to be."""
    return os.path.basename(sys.argv[0]) in ("-m", "maskplugins")


def begin() -> None:
    """Before torch and fairseq are imported, which takes seconds.

    An interrupt ends the process at once: Python's handler would wait for compiled code, which may drop what it raises, and
    leave a traceback of libraries. And a task of fairseq's that no command uses says what it would like installed.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """A command's work: an interrupt unwinds it, so that its temporary files go, and then ends the process as if nobody
    had heeded the signal. To a shell that is exit status 130, and the end of a loop that the command is in; a status of
    our own would let the loop go on."""
    from ..errors import Interrupted

    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        _end_by(signal.SIGINT)
    except Interrupted as error:
        print(error, file=sys.stderr)
        _end_by(error.number)


def _end_by(number: int) -> None:
    signal.signal(number, signal.SIG_IGN)  # once is enough
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or nobody reads it
            stream.flush()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
