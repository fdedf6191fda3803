"""Counting on one machine with DuckDB, in a given amount of memory and otherwise on disk (no fairseq)."""

import contextlib
import os
import re
import tempfile
from typing import Dict, Iterator, List, Sequence, Tuple

import numpy as np

from ..errors import UsageError, one_line
from . import sql
from .count import Partial, count_batch
from .coverage import PhraseTable, cover_batch
from .text import BATCH_BYTES, is_stream, read_batches
from .words import WordSplitter

CHUNK = 200_000
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
MIN_MEMORY = 256 << 20
MAX_THREADS = 1024


def parse_memory(text: str) -> int:
    """``"4GB"``, ``"512MB"``, ``"4GiB"`` to bytes (powers of 1024).

    Raises:
        UsageError: it is no such thing, or below 256MB.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", text.strip().upper())
    if not match:
        raise UsageError(f"--memory-limit must be a size such as 4GB or 512MB, got {text!r}")
    size = float(match.group(1)) * 1024 ** _UNITS[match.group(2)]
    if size < MIN_MEMORY:
        raise UsageError(f"--memory-limit must be at least 256MB, got {text[:40]}")
    return int(min(size, 1 << 60))  # DuckDB takes no more


def share_memory(limit: int) -> Tuple[int, int]:
    """Divide ``--memory-limit`` (bytes) into the database's own limit and a batch's length. The database's overhead and a batch
    with its n-grams (some 25 times its text) come out of it too. Measured: a process stays within it."""
    batch = BATCH_BYTES if limit >= 512 << 20 else BATCH_BYTES // 4
    return max(limit // 2, limit * 4 // 5 - (200 << 20)), batch


class DuckEngine:
    """Put partial counts into a database in a temporary folder, which goes with the context; SQL adds them up.

    Args:
        memory_limit: for all of the counting, such as ``"4GB"``.
        temp_dir: may need several times the text's size.
        threads: of the database, or None for all cores.
        progress: ``progress(total, unit, what)`` gives an object with ``update(n)`` and ``close()``.
    """

    def __init__(self, memory_limit: str, temp_dir: str, threads, progress):
        limit, self.batch_bytes = share_memory(parse_memory(memory_limit))
        if threads is not None and not 1 <= threads <= MAX_THREADS:  # DuckDB would start every one of them
            raise UsageError(f"--threads must lie in [1, {MAX_THREADS}], got {threads}")
        try:
            import duckdb
        except ImportError:
            raise UsageError("--engine duckdb needs the package duckdb: pip install 'fairseq_maskplugins[pmi]'") from None
        self.duckdb, self.memory_limit, self.temp_dir, self.progress = duckdb, memory_limit, temp_dir, progress
        # a file that can't be written ends the statement, or the commit after it, or the whole database
        self.disk_errors = (duckdb.IOException, duckdb.TransactionException, duckdb.FatalException)
        self.stack = contextlib.ExitStack()
        try:
            self.folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="pmi-build-", dir=temp_dir))
        except OSError as error:
            raise self._no_room(error.strerror) from None
        try:
            self.db = duckdb.connect(os.path.join(self.folder, "counts.duckdb"))
            for setting in (
                f"memory_limit = '{limit // 1024}KiB'",
                "temp_directory = '{}'".format(str(self.folder).replace("'", "''")),
                "preserve_insertion_order = false",
                *([] if threads is None else [f"threads = {threads}"]),
            ):
                self.db.execute(f"SET {setting}")
            self.db.execute("PRAGMA disable_checkpoint_on_shutdown")  # the database is thrown away
        except self.disk_errors as error:
            self.stack.close()
            raise self._no_room(error) from None

    def __enter__(self) -> "DuckEngine":
        return self

    def __exit__(self, *unused: object) -> None:
        with self.stack, contextlib.suppress(*self.disk_errors):  # the database is thrown away
            self.db.close()

    def _no_room(self, reason: object) -> UsageError:
        return UsageError(f"--temp-dir {self.temp_dir}: can't write there: {one_line(reason, 300)}")

    def _run(self, query: str):
        try:
            return self.db.execute(query)
        except RuntimeError as error:  # what DuckDB makes of Ctrl-C during a query
            if "interrupt" in str(error):
                raise KeyboardInterrupt from None
            raise
        except self.duckdb.OutOfMemoryException:
            raise UsageError(
                f"--memory-limit {self.memory_limit} is too small for this text, or the disk of --temp-dir is full; "
                "give more of it, or fewer --threads"
            ) from None
        except self.disk_errors as error:
            raise self._no_room(error) from None

    def count(self, files: Sequence[str], splitter: WordSplitter) -> None:
        """Fill the tables of partial counts."""
        for n in sql.LENGTHS:
            self._run(f"CREATE TABLE grams{n} ({', '.join(sql.grams_columns(n))})")
        size = None if any(map(is_stream, files)) else sum(map(os.path.getsize, files))
        bar = self.progress(size, "B", "counting")
        try:
            for path in files:
                for text in read_batches(path, progress=bar.update, batch_bytes=self.batch_bytes):
                    self.insert(count_batch(text, splitter))
        finally:
            bar.close()

    def insert(self, partial: Partial) -> None:
        words = np.array(partial.words, dtype=object)
        self._insert(1, {"w1": partial.keys, "word": words, "c": partial.counts})
        for n, (columns, counts) in partial.grams.items():
            self._insert(n, {**{f"w{i}": column for i, column in enumerate(columns, 1)}, "c": counts})

    def _insert(self, n: int, batch: Dict[str, np.ndarray]) -> None:
        if len(batch["c"]):
            self.db.register("batch", batch)
            self._run(f"INSERT INTO grams{n} SELECT * FROM batch")
            self.db.unregister("batch")

    def aggregate(self, min_count: int) -> List[int]:
        """Make the tables ``scored{n}``; returns the corpus's number of n-grams for n from 0 (unused) to 5."""
        bar = self.progress(len(sql.LENGTHS), "table", "adding up")
        try:
            totals = [0] + [total for _, total in self._run(sql.totals()).fetchall()]
            self._run(f"CREATE TABLE words1 AS {sql.words()}")
            refuse_collisions(self._run(sql.collisions()).fetchone())
            self._run(f"CREATE TABLE scored1 AS {sql.scored_words(min_count)}")
            self._drop("words1", "grams1")
            bar.update(1)
            for n in sql.LENGTHS[1:]:
                self._run(f"CREATE TABLE scored{n} AS {sql.scored(n, min_count)}")
                self._drop(f"grams{n}")
                bar.update(1)
        finally:
            bar.close()
        return totals

    def _drop(self, *tables: str) -> None:
        for table in tables:
            self._run(f"DROP TABLE {table}")

    def candidates(self, n: int) -> Iterator[Tuple[List[str], List[np.ndarray]]]:
        """Phrases of n words and their counts (``sql.counts(n)``), in parts that fit in memory, in no order."""
        rows = self._run(f"SELECT COUNT(*) FROM scored{n}").fetchone()[0]
        parts = -(-rows // CHUNK)
        for part in range(parts):
            columns = self._run(sql.candidates(n, f"ABS((g.w1 % {parts} + g.w2 % {parts}) % {parts}) = {part}")).fetchnumpy()
            yield list(columns["phrase"]), [np.asarray(columns[name], dtype=np.int64) for name in sql.counts(n)]

    def cover(self, files: Sequence[str], splitter: WordSplitter, table: PhraseTable) -> Iterator[Tuple[int, int]]:
        """Slots of the table and how many words are inside that slot's phrase and inside none of a smaller slot."""
        bar = self.progress(sum(map(os.path.getsize, files)), "B", "covering")
        try:
            for path in files:
                for text in read_batches(path, progress=bar.update, batch_bytes=self.batch_bytes):
                    slots, counts, _ = cover_batch(text, splitter, table)
                    yield from zip(slots.tolist(), counts.tolist())
        finally:
            bar.close()


def refuse_collisions(row) -> None:
    if row is not None:
        raise UsageError(f"the words {row[0]!r} and {row[1]!r} have the same 64-bit key; take one of them out of the text")
