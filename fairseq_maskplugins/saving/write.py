"""``torch.save`` that says why it can't write (no fairseq here)."""

import contextlib
import signal
import threading
from typing import IO, Any, Iterator, Optional

import torch


class _Noting:
    """A file that keeps its first error and takes what comes after for written. Compiled code of torch must not see it: it
    reports another one in its place, and of some versions (1.12) ends the whole process."""

    def __init__(self, file: IO[bytes]):
        self.file = file
        self.error: Optional[OSError] = None

    def write(self, data: Any) -> int:
        try:
            if self.error is None:
                return self.file.write(data)
        except OSError as error:
            self.error = error
        return memoryview(data).nbytes

    def flush(self) -> None:
        if self.error is None:
            self.file.flush()


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Heed an interrupt at the end of the block: what Python raises in the middle of compiled code is lost there, or comes out
    as an error of another kind."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    came = []
    signal.signal(signal.SIGINT, lambda *found: came.append(found))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if came:
        handler(*came[0])


def save(obj: Any, path: str) -> None:
    """Write an object with ``torch.save``.

    Raises:
        OSError: the disk is full, or the file can't be written for another reason.
    """
    with open(path, "wb") as file:
        noting = _Noting(file)
        with _interrupts_wait():
            torch.save(obj, noting)
        if noting.error is not None:
            raise noting.error
