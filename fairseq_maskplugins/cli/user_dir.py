"""``--user-dir`` of the commands: one line where a plug-in can't be imported."""

import argparse
import os
import traceback
from typing import List, Optional, Tuple

from ..errors import UsageError


def take_user_dir(arguments: List[str]) -> List[str]:
    """Import what ``--user-dir`` names: it may register maskers, with options that a command then takes.

    Returns:
        the arguments without it.
    """
    path, rest = split_user_dir(arguments)
    if path is not None:
        import_user_dir(path)
    return rest


def split_user_dir(arguments: List[str]) -> Tuple[Optional[str], List[str]]:
    """The value of ``--user-dir``, or None, and the other arguments."""
    parser = argparse.ArgumentParser(prog="maskplugins", add_help=False, allow_abbrev=False)
    parser.add_argument("--user-dir")
    found, rest = parser.parse_known_args(arguments)
    return found.user_dir, rest


def import_user_dir(path: str) -> None:
    """Import a plug-in as fairseq-train does.

    Raises:
        UsageError: there is no such folder, or importing it fails; names the file and line where it does.
    """
    if not path:
        raise UsageError("--user-dir must not be empty")
    from fairseq.utils import import_user_module

    try:
        import_user_module(argparse.Namespace(user_dir=path))
    except FileNotFoundError as error:
        if str(error) != os.path.abspath(
            path
        ):  # what fairseq raises for a folder that is not there; else the plug-in's
            raise _failed(path, error) from error
        raise UsageError(f"--user-dir {path}: no such folder") from None
    except UsageError:
        raise
    except Exception as error:  # whatever somebody else's code raises
        raise _failed(path, error) from error


def _failed(path: str, error: Exception) -> UsageError:
    if isinstance(error, SyntaxError):
        place = f"{error.filename}, line {error.lineno}"
    else:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [
            frame for frame in frames if os.path.realpath(frame.filename).startswith(os.path.realpath(path) + os.sep)
        ]
        place = f"{inside[-1].filename}, line {inside[-1].lineno}" if inside else path
    what = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    return UsageError(f"--user-dir {path}: importing it fails in {place}: {type(error).__name__}: {what[:200]}")
