"""Counting on a cluster with Spark: the same partial counts, the same SQL (no fairseq)."""

import logging
import os
import shutil
import sys
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from .. import errors, files
from ..errors import UsageError
from . import count, coverage, sql, text, words
from .count import MAX_N, count_batch
from .coverage import PhraseTable, cover_batch
from .duck import CHUNK, refuse_collisions
from .text import read_batches
from .words import WordSplitter

PART_BYTES = 64 << 20
ERROR = 0  # in the place of n: the row's word is an error message


class Part(NamedTuple):
    """A file, or the lines that begin in bytes ``[start, end)`` of it."""

    path: str
    start: int = 0
    end: Optional[int] = None


def split_files(files: Sequence[str], part_bytes: int = PART_BYTES) -> List[Part]:
    """Cut plain files into parts; compressed ones stay whole."""
    parts = []
    for path in files:
        size = os.path.getsize(path)
        if size <= part_bytes or text.is_compressed(path):
            parts.append(Part(path))
        else:
            parts += [Part(path, start, min(start + part_bytes, size)) for start in range(0, size, part_bytes)]
    return parts


def count_rows(parts: Iterator[Part], splitter: WordSplitter) -> Iterator[Tuple]:
    """Partial counts of parts as rows ``(n, w1 .. w5, word, c)``; what goes wrong becomes a row too."""
    try:
        for part in parts:
            for batch in read_batches(*part):
                words, keys, counts, grams = count_batch(batch, splitter)
                for key, word, c in zip(keys.tolist(), words, counts.tolist()):
                    yield (1, key, None, None, None, None, word, c)
                for n, (columns, counts) in grams.items():
                    padding = (None,) * (MAX_N - n + 1)
                    for *keys, c in zip(*(column.tolist() for column in columns), counts.tolist()):
                        yield (n, *keys, *padding, c)
    except UsageError as error:  # it is an exit, and would end the worker
        yield (ERROR, None, None, None, None, None, str(error), 0)


def cover_rows(parts: Iterator[Part], splitter: WordSplitter, table: PhraseTable) -> Iterator[Tuple[int, int]]:
    """What :func:`~fairseq_maskplugins.pmi_build.coverage.cover_batch` finds, as pairs; slot -1 counts all words."""
    for part in parts:
        for batch in read_batches(*part):
            slots, counts, total = cover_batch(batch, splitter, table)
            yield (-1, total)
            yield from zip(slots.tolist(), counts.tolist())


class SparkEngine:
    """Let executors make partial counts from the files, and SQL add them up. The executors need numpy (and zstandard or
    sentencepiece where used) and the files under the same names, but neither fairseq nor this package."""

    def __init__(self, master: Optional[str], progress: Callable):
        self.progress, self.spark, self.rows = progress, None, None
        if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
            raise UsageError("--engine spark needs Java, and there is none: install a JRE (17), or set JAVA_HOME")
        try:
            from pyspark import cloudpickle
            from pyspark.sql import SparkSession
        except ImportError:
            raise UsageError("--engine spark needs the package pyspark: pip install 'fairseq_maskplugins[spark]'") from None
        for module in (errors, files, text, words, count, coverage, sys.modules[__name__]):
            cloudpickle.register_pickle_by_value(module)
        builder = SparkSession.builder.appName("maskplugins pmi build")
        if master is not None:
            builder = builder.master(master)
        if (master or "").startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "16")
        logging.getLogger("py4j").setLevel(logging.WARNING)  # under a root logger at DEBUG it logs every call
        try:
            self.spark = builder.getOrCreate()
        except Exception as error:  # Java's exceptions, and pyspark's own, whatever the version
            reason = str(error).strip().splitlines()
            raise UsageError(
                f"--master {master}: can't start Spark: {reason[0][:300] if reason else type(error).__name__}"
            ) from None
        self.spark.sparkContext.setLogLevel("ERROR")

    def __enter__(self) -> "SparkEngine":
        return self

    def __exit__(self, *unused: object) -> None:
        self.spark.stop()

    def count(self, files: Sequence[str], splitter: WordSplitter) -> None:
        """Make the views of partial counts."""
        types = ", ".join(f"w{i} BIGINT" for i in range(1, MAX_N + 1))
        self.parts = split_files(files)
        rows = self._parts().mapPartitions(lambda parts: count_rows(parts, splitter))
        self.rows = self._keep(self.spark.createDataFrame(rows, f"n INT, {types}, word STRING, c BIGINT"))
        self.rows.createOrReplaceTempView("grams")
        for n in sql.LENGTHS:
            names = ", ".join(column.split()[0] for column in sql.grams_columns(n))
            self._view(f"grams{n}", f"SELECT {names} FROM grams WHERE n = {n}")

    def _parts(self) -> Any:
        return self.spark.sparkContext.parallelize(self.parts, len(self.parts))

    def _view(self, name: str, query: str, keep: bool = False) -> None:
        frame = self.spark.sql(query)
        (self._keep(frame) if keep else frame).createOrReplaceTempView(name)

    def _keep(self, frame: Any) -> Any:
        """Compute a table once. A checkpoint and no cache: every table is read four times to make the next, and with a
        cache Spark would still plan all of it, 4^4 times over."""
        if self.spark.sparkContext.getCheckpointDir():
            return frame.checkpoint()
        return frame.localCheckpoint()

    def aggregate(self, min_count: int) -> List[int]:
        """Make the views ``scored{n}``; returns the corpus's number of n-grams for n from 0 (unused) to 5."""
        bar = self.progress(len(sql.LENGTHS), "table", "counting")
        try:
            failed = self.spark.sql(f"SELECT word FROM grams WHERE n = {ERROR}").first()
            if failed is not None:
                raise UsageError(failed[0])
            totals = [0] + [row[1] for row in self.spark.sql(sql.totals()).collect()]
            self._view("words1", sql.words(), keep=True)
            refuse_collisions(self.spark.sql(sql.collisions()).first())
            self._view("scored1", sql.scored_words(min_count), keep=True)
            bar.update(1)
            for n in sql.LENGTHS[1:]:
                self._view(f"scored{n}", sql.scored(n, min_count), keep=True)
                bar.update(1)
        finally:
            bar.close()
        return totals

    def candidates(self, n: int) -> Iterator[Tuple[List[str], List[np.ndarray]]]:
        """Phrases of n words and their counts (``sql.counts(n)``), in parts that fit in memory, in no order."""
        rows = self.spark.sql(sql.candidates(n)).toLocalIterator()
        while True:
            chunk = [tuple(row) for row, _ in zip(rows, range(CHUNK))]
            if not chunk:
                return
            columns = list(zip(*chunk))
            yield list(columns[0]), [np.array(column, dtype=np.int64) for column in columns[1:]]

    def cover(self, files: Sequence[str], splitter: WordSplitter, table: PhraseTable) -> Iterator[Tuple[int, int]]:
        """The pairs of :func:`cover_rows`, added up."""
        shared = self.spark.sparkContext.broadcast(table.by_length)
        pairs = self._parts().mapPartitions(lambda parts: cover_rows(parts, splitter, PhraseTable(shared.value)))
        yield from pairs.reduceByKey(lambda a, b: a + b).toLocalIterator()
