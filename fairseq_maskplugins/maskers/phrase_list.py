"""Reading a list of phrases: one a line, maybe with score and count (no fairseq here)."""

import gzip
import io
import re
import zlib
from typing import Iterator, List, Tuple

from ..errors import UsageError

MAX_WORDS = 32
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")


def read_bytes(path: str, option: str = "--pmi-vocab ") -> bytes:
    """The file as it is on the disk. Errors name it after ``option`` (here and below), as the user gave it."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{option}{path}: can't read the list of phrases: {error.strerror or error}")


def iterate_lines(path: str, raw: bytes, option: str = "--pmi-vocab ") -> Iterator[Tuple[int, str]]:
    """Numbers (from 1) and texts of the lines; gzip is told by its first bytes, not by the name."""
    stream = gzip.GzipFile(fileobj=io.BytesIO(raw)) if raw[:2] == b"\x1f\x8b" else io.BytesIO(raw)
    number = 0
    try:
        for number, line in enumerate(stream, 1):
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{option}{path}: line {number} is not UTF-8: {error.reason} at byte {error.start}")
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{option}{path}: the gzip file is damaged after line {number}: {error}")


def parse_phrases(path: str, raw: bytes, option: str = "--pmi-vocab ") -> Iterator[List[str]]:
    """Check the lines of a list and give their phrases, in batches.

    A line is ``phrase``, ``phrase TAB score`` or ``phrase TAB score TAB count``. White space around a phrase and
    between its words may be of any length.

    Raises:
        UsageError: a line without a phrase, with control characters, with more than 32 words, with a score or count that
            is no number, or with more fields; a file that is not UTF-8, a damaged gzip file, a file without lines.
    """
    batch: List[str] = []
    number = 0
    for number, line in iterate_lines(path, raw, option):
        phrase, *rest = line.rstrip("\r\n").split("\t")
        problem = _find_problem(phrase, rest)
        if problem:
            raise UsageError(f"{option}{path}: line {number} {problem}")
        batch.append(phrase)
        if len(batch) == 100_000:
            yield batch
            batch = []
    if number == 0:
        raise UsageError(f"{option}{path}: the list of phrases is empty")
    if batch:
        yield batch


def _find_problem(phrase: str, rest: List[str]) -> str:
    if _CONTROL.search(phrase):
        return f"holds control characters: {phrase[:40]!r}; a list is text with one phrase a line"
    words = len(phrase.split())
    if words == 0:
        return "has no phrase"
    if words > MAX_WORDS:
        return f"has a phrase of {words} words, at most {MAX_WORDS} are allowed: {phrase[:40]!r}..."
    if len(rest) > 2:
        return f"has {len(rest) + 1} fields, expected a phrase, and maybe a score and a count"
    for name, kind, field in zip(("score", "count"), (float, int), rest):
        try:
            kind(field)
        except ValueError:
            return f"has the {name} {field[:40]!r}, which is not {'a number' if kind is float else 'an integer'}"
    return ""
