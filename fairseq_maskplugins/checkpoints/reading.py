"""``torch.load`` for checkpoints, with the same protection in all versions of torch (torch, no fairseq)."""

import contextlib
import pickle
import re
from typing import Any, BinaryIO, Iterator

import torch

from ..compat import loads_weights_only
from ..errors import UsageError
from .first_pass import look_through
from .guard import check_archive, check_state, file_size
from .names import make_table
from .rebuild import Refused
from .safe_pickle import pickle_module

# objects of these are made and filled, as pickles of them do; those that users allow may also be called
_known: list = []
_allowed: list = []


def know_in_checkpoints(*classes: type) -> None:
    """Let checkpoints hold objects of these classes, which fairseq's checkpoints have."""
    if loads_weights_only():
        torch.serialization.add_safe_globals(list(classes))
    _known.extend(classes)


def allow_in_checkpoints(*classes: type) -> None:
    """Let checkpoints hold objects of more classes, those of a plug-in of yours: loading them must run no code."""
    if loads_weights_only():
        torch.serialization.add_safe_globals(list(classes))
    _allowed.extend(classes)


def read_checkpoint(file: BinaryIO, map_location: Any = "cpu") -> Any:
    """What a checkpoint file holds.

    Raises:
        pickle.UnpicklingError: it holds something that could run code, or is more than it seems to be.
        Exception: it is damaged; of many kinds.
    """
    size, room = file_size(file), check_archive(file)
    file.seek(0)
    if loads_weights_only():
        look_through(file, room, size, _known)
        file.seek(0)
        options = {"weights_only": True}  # an environment variable switches it off where nothing is said
    else:
        options = {"pickle_module": pickle_module(make_table(_known, _allowed), room, size)}
    state = torch.load(file, map_location=map_location, **options)
    check_state(state, size)
    return state


@contextlib.contextmanager
def explain_reading(path: str) -> Iterator[None]:
    """One line for whatever reading a checkpoint leads to."""
    try:
        yield
    except UsageError:
        raise
    except MemoryError as error:
        raise UsageError(f"{path}: can't read this checkpoint: there is not enough memory for it") from error
    except pickle.UnpicklingError as error:
        raise _refused(path, error) from error
    except Exception as error:  # what is no checkpoint may lead anywhere
        reason = " ".join(str(error).split())[:200]
        if isinstance(error, OSError) and error.strerror:
            raise UsageError(f"{path}: can't read this checkpoint: {error.strerror}") from error
        told = (
            isinstance(error, (OSError, RuntimeError, ValueError)) and not isinstance(error, RecursionError) and reason
        )
        raise UsageError(_damaged(path, reason if told else "")) from error


def _damaged(path: str, reason: str) -> str:
    return f"{path}: can't read this checkpoint: it is damaged, or no checkpoint{f' ({reason})' if reason else ''}"


def _refused(path: str, error: Exception) -> UsageError:
    message = str(error)
    found = re.search(r"GLOBAL (\S+)", message)
    if found and not isinstance(error, Refused):
        message = f"it holds {found.group(1)}, which is no part of a fairseq checkpoint and could run code"
    if found or isinstance(error, Refused):
        return UsageError(f"{path}: refused to load this checkpoint: {message}")
    # torch's own message goes on to recommend loading without protection
    found = re.search(r"WeightsUnpickler error: *([^\n]+)", message)
    detail = found.group(1) if found else message.split("\n")[0].split("In PyTorch 2.6")[0]
    return UsageError(_damaged(path, " ".join(detail.split())[:200]))
