"""``torch.save`` that says why it can't write (no fairseq here)."""

from typing import IO, Any, Optional

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


def save(obj: Any, path: str) -> None:
    """Write an object with ``torch.save``.

    Raises:
        OSError: the disk is full, or the file can't be written for another reason.
    """
    with open(path, "wb") as file:
        noting = _Noting(file)
        torch.save(obj, noting)
        if noting.error is not None:
            raise noting.error
