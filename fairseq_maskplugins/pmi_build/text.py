"""Reading text files in batches of whole lines: plain, gzip or zstd, told apart by their first bytes (no fairseq)."""

import glob
import os
import sys
import zlib
from typing import Any, BinaryIO, Callable, Iterator, List, Optional, Sequence, Tuple

from ..errors import UsageError

BATCH_BYTES = 1 << 22  # of text: about 700,000 words of English
_BLOCK = 1 << 20
_BOM = b"\xef\xbb\xbf"


def is_stream(path: str) -> bool:
    """Whether it is standard input or a pipe, which can be read once, by one process, from its beginning."""
    return path == "-" or os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def find_files(patterns: Sequence[str]) -> List[str]:
    """Resolve paths and globs to files, each once, in sorted order; ``-`` is standard input.

    Raises:
        UsageError: a path does not exist, is a directory, or can't be read; a glob matches nothing.
    """
    found = set()
    for pattern in patterns:
        # a name with brackets in it may simply be a file
        paths = [pattern] if pattern == "-" or os.path.exists(pattern) else glob.glob(pattern, recursive=True)
        if not paths:
            kind = "the pattern matches no file" if glob.has_magic(pattern) else "no such file"
            raise UsageError(f"{pattern}: {kind}")
        found.update(path for path in paths if path in patterns or not os.path.isdir(path))
    for path in found - {"-"}:
        if os.path.isdir(path):
            raise UsageError(f"{path}: is a directory; give files, or a pattern such as {os.path.join(path, '*.txt')}")
        try:
            if not is_stream(path):  # to open a pipe and close it ends whoever writes to it
                open(path, "rb").close()
        except OSError as error:
            raise UsageError(f"{path}: can't read it: {error.strerror}") from None
    if not found:
        raise UsageError(f"{patterns[0] if patterns else 'FILE'}: the pattern matches no file")
    # a file that several patterns or links lead to is read once
    unique = {path if is_stream(path) else os.path.realpath(path): path for path in sorted(found, reverse=True)}
    return sorted(unique.values())


def is_compressed(path: str) -> bool:
    """Whether a file begins like gzip or zstd, and so can't be read from the middle."""
    with open(path, "rb") as file:
        return _decompressor(file.read(4), path) is not None


def read_batches(
    path: str,
    start: int = 0,
    end: Optional[int] = None,
    progress: Optional[Callable[[int], Any]] = None,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[str]:
    """Yield a file's text in batches of whole lines; errors name the file and line.

    Args:
        path: file, or ``-`` for standard input.
        start, end: read the lines that begin in these bytes; plain files only.
        progress: called with the number of bytes read since the last call.
        batch_bytes: a batch ends with the line that reaches this many bytes.
    """
    where = "standard input" if path == "-" else path
    line = 0 if start == 0 else None  # lines before a part are not counted
    try:
        file = sys.stdin.buffer if path == "-" else open(path, "rb")
        try:
            for batch in _cut_at_lines(_read_blocks(file, where, start, end, progress), batch_bytes):
                if line == 0 and batch.startswith(_BOM):
                    batch = batch[len(_BOM) :]
                try:
                    yield batch.decode("utf-8")
                except UnicodeDecodeError as error:
                    before = batch[: error.start]
                    place = f"byte {start + error.start}" if line is None else f"line {line + before.count(10) + 1}"
                    raise UsageError(f"{where}: {place} is not UTF-8 (byte 0x{batch[error.start]:02x})") from None
                if line is not None:
                    line += batch.count(b"\n")
        finally:
            if path != "-":
                file.close()
    except OSError as error:
        raise UsageError(f"{where}: can't read it: {error.strerror or error}") from None


def _read_blocks(
    file: BinaryIO, where: str, start: int, end: Optional[int], progress: Optional[Callable[[int], Any]]
) -> Iterator[bytes]:
    if start > 0:
        # the line that holds the byte before start belongs to the part before, up to its end
        file.seek(start - 1)
        skipped = len(file.readline()) - 1
        start += skipped
        if end is not None and start >= end:
            return
    left = None if end is None else end - start
    decompress = None
    first = True
    while True:
        block = file.read(_BLOCK if left is None else min(_BLOCK, left))
        if first:
            decompress, first = _decompressor(block[:4], where), False
        if progress is not None:
            progress(len(block))
        if left is not None:
            left -= len(block)
            if left == 0:
                # up to the end of the line that was begun
                block += b"" if block.endswith(b"\n") else file.readline()
                yield block
                return
        if not block:
            break
        if decompress is None:
            yield block
        else:
            text = decompress.feed(block)  # in short blocks again: --memory-limit counts on short batches
            for at in range(0, len(text), _BLOCK):
                yield text[at : at + _BLOCK]
    if decompress is not None:
        decompress.finish()


def _cut_at_lines(blocks: Iterator[bytes], batch_bytes: int) -> Iterator[bytes]:
    parts: List[bytes] = []
    size = 0
    for block in blocks:
        cut = block.rfind(b"\n") + 1
        if cut and size + cut >= batch_bytes:
            yield b"".join(parts) + block[:cut]
            parts, size = [], 0
            block = block[cut:]
        parts.append(block)
        size += len(block)
    if size:
        yield b"".join(parts)


class _Decompressor:
    """Decompresses a file that is one or more gzip members or zstd frames, block by block."""

    def __init__(self, make: Callable[[], Any], errors: Tuple[type, ...], kind: str, where: str):
        self.make, self.errors, self.kind, self.where = make, errors, kind, where
        self.stream: Any = None
        self.begun = False

    def feed(self, block: bytes) -> bytes:
        out = []
        try:
            while block:
                if self.stream is None:
                    if self.kind == "gzip" and self.begun:
                        block = block.lstrip(b"\0")  # padding after a member is allowed
                        if not block:
                            break
                    self.stream, self.begun = self.make(), True
                out.append(self.stream.decompress(block))
                block = self.stream.unused_data
                if not self.stream.eof:
                    break
                self.stream = None
        except self.errors as error:
            raise UsageError(f"{self.where}: damaged {self.kind} file: {error}") from None
        return b"".join(out)

    def finish(self) -> None:
        if self.stream is not None:
            raise UsageError(f"{self.where}: damaged {self.kind} file: it ends in the middle")


def _decompressor(magic: bytes, where: str) -> Optional[_Decompressor]:
    if magic[:2] == b"\x1f\x8b":
        return _Decompressor(lambda: zlib.decompressobj(wbits=31), (zlib.error,), "gzip", where)
    if magic == b"\x28\xb5\x2f\xfd":
        try:
            import zstandard
        except ImportError:
            raise UsageError(
                f"{where}: reading zstd needs the package zstandard: pip install 'fairseq_maskplugins[pmi]'"
            ) from None
        make = zstandard.ZstdDecompressor().decompressobj
        return _Decompressor(make, (zstandard.ZstdError,), "zstd", where)
    return None
