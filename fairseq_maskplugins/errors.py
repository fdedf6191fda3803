"""The one error type for bad input."""

import contextlib
from typing import Iterator, Mapping

try:
    from hydra.errors import CompactHydraException
except ImportError:  # a broken installation, which "maskplugins doctor" explains
    CompactHydraException = Exception

LONGEST = 2000
_PREFIX = "fairseq_maskplugins: "
_FROM_WORKER = "Caught UsageError in "


def _one_line(text: str) -> str:
    """What files and options brought into a message may hold anything: line ends, a terminal's commands, megabytes."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[:LONGEST])
    return shown + ("..." if len(text) > LONGEST else "")


class UsageError(SystemExit, ValueError, CompactHydraException):
    """Bad input: an option, a file or a combination of versions.

    Its text is one line that names the option or file, the rule and the value. It is a ``ValueError`` for people who
    call us from Python, a ``SystemExit`` so that a command ends with that line on standard error and exit status 1
    where a plain exception would bury it under a traceback, and what Hydra shows without a traceback.
    """

    def __init__(self, message: str):
        if message.startswith(_FROM_WORKER):
            # torch raises a data worker's error again in the main process, with the worker's traceback for its text
            message = message.rstrip().rsplit("\n", 1)[-1].split("UsageError: ", 1)[-1]
        text = message if message.startswith(_PREFIX) else _PREFIX + message
        super().__init__(_one_line(text))

    def __str__(self) -> str:
        return str(self.args[0])

    @property
    def said(self) -> str:
        """The text without the package's name before it."""
        return str(self)[len(_PREFIX) :]


class CheckpointError(UsageError):
    """What is wrong with a checkpoint, in words that follow the name of its file: who has read it knows its name."""

    def at(self, path: str) -> UsageError:
        return UsageError(f"{path}: {self.said}")


@contextlib.contextmanager
def naming(paths: Mapping[str, str]) -> Iterator[None]:
    """Put paths into the messages of parts that are given a file's content, and know of the file what it is for.

    Args:
        paths: what stands there for what messages begin with: ``{"dict.txt": "data-bin/dict.txt"}``.
    """
    try:
        yield
    except UsageError as error:
        for known, path in paths.items():
            if error.said.startswith(f"{known}: "):
                raise UsageError(path + error.said[len(known) :]) from None
        raise


class Interrupted(UsageError):
    """What a command has to say of a signal that ended it."""

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.number = number
