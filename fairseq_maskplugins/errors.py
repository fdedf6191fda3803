"""The error type for bad input."""

import contextlib
import sys
from typing import Iterator, Mapping

# fairseq has imported Hydra before it loads a --user-dir; a library user may not have it
_hydra_errors = sys.modules.get("hydra.errors")
_HydraError = getattr(_hydra_errors, "CompactHydraException", Exception)

MAX_LENGTH = 2000
_PREFIX = "fairseq_maskplugins: "
_FROM_WORKER = "Caught UsageError in "


def one_line(text: object, max_length: int = MAX_LENGTH) -> str:
    """Escape line breaks and control characters, which file contents and options may bring in, and cut long text.

    The text of an error of a library may have several lines, which are joined.
    """
    text = " ".join(str(text).split()) if isinstance(text, Exception) else str(text)
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[:max_length])
    return shown + ("..." if len(text) > max_length else "")


class UsageError(SystemExit, ValueError, _HydraError):
    """Bad input: an option, a file or a combination of versions.

    The text is one line that names the option or file, the rule and the value. It is a ``ValueError`` for callers in
    Python, and a ``SystemExit`` so that a command prints the line and exits with status 1 instead of a traceback. Hydra
    shows it without a traceback too.
    """

    def __init__(self, message: str):
        if message.startswith(_FROM_WORKER):
            # torch raises a data worker's error again in the main process, with the worker's traceback as its text
            message = message.rstrip().rsplit("\n", 1)[-1].split("UsageError: ", 1)[-1]
        super().__init__(one_line(message if message.startswith(_PREFIX) else _PREFIX + message))

    def __str__(self) -> str:
        return str(self.args[0])

    @property
    def message(self) -> str:
        """The text without the package's name before it."""
        return str(self)[len(_PREFIX) :]


class CheckpointError(UsageError):
    """A fault of a checkpoint, worded to follow the file's name, which only the caller knows."""

    def at(self, path: str) -> UsageError:
        return UsageError(f"{path}: {self.message}")


@contextlib.contextmanager
def naming(paths: Mapping[str, str]) -> Iterator[None]:
    """Put file paths into the messages of code that is handed a file's content and does not know its path.

    Args:
        paths: replacements for the beginning of messages, for example ``{"dict.txt": "data-bin/dict.txt"}``.
    """
    try:
        yield
    except UsageError as error:
        for known, path in paths.items():
            if error.message.startswith(f"{known}: "):
                raise UsageError(path + error.message[len(known) :]) from None
        raise
