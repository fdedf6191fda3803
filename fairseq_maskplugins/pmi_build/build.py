"""Building a PMI vocabulary from text (no fairseq)."""

import gzip
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence

import numpy as np

from ..errors import UsageError
from ..files import replacing
from . import sql
from .coverage import PhraseTable, smallest_size
from .duck import DuckEngine
from .score import Best, Phrase, check_choice, merge, score_phrases, slots
from .spark import SparkEngine
from .text import find_files, is_stream
from .words import WordSplitter

DEFAULT_SIZE = 800_000
ENGINES = ("duckdb", "spark")


class Built(NamedTuple):
    """A list, with its number of slots, the number of candidates by number of words, the number of words in the text, and of
    words inside a phrase (None without ``coverage``)."""

    phrases: List[Phrase]
    size: int
    candidates: Dict[int, int]
    words: int
    covered: Optional[int]


class _Silent:
    def update(self, amount: int) -> None:
        pass

    def close(self) -> None:
        pass


def build_list(
    patterns: Sequence[str],
    splitter: Optional[WordSplitter] = None,
    score: str = "pmi",
    min_count: int = 11,
    size: Optional[int] = None,
    coverage: Optional[float] = None,
    engine: str = "duckdb",
    memory_limit: str = "4GB",
    temp_dir: str = ".",
    threads: Optional[int] = None,
    master: Optional[str] = None,
    progress: Callable[[Optional[int], str, str], Any] = lambda total, unit, what: _Silent(),
) -> Built:
    """Count, score and choose phrases. The result depends on the text and the first six arguments only.

    Args:
        patterns: files, pipes or globs, or ``-``.
        splitter: how text becomes words; None for lower-cased words between blanks.
        score: ``"pmi"`` or ``"frequency"``.
        min_count: the minimum number of occurrences, 1 or more.
        size: number of entries, 1 or more; None for 800,000, or with ``coverage`` for no limit.
        coverage: fraction in (0, 1] of the words that must be inside a phrase: the list is as short as that allows.
        engine: ``"duckdb"`` or ``"spark"``.
        memory_limit, temp_dir, threads: of DuckDB. master: of Spark.
        progress: see :class:`~fairseq_maskplugins.pmi_build.duck.DuckEngine`.
    """
    check_choice(score, min_count, size, coverage)
    if engine not in ENGINES:
        raise UsageError(f"--engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    splitter = splitter or WordSplitter()
    files = find_files(patterns)
    streams = ["standard input" if path == "-" else path for path in files if is_stream(path)]
    if coverage is not None and streams:
        raise UsageError(f"--coverage reads the text twice, and so can't go with {streams[0]}")
    if engine == "spark" and streams:
        raise UsageError(f"--engine spark reads files, not {streams[0]}")
    limit = size if size is not None or coverage is not None else DEFAULT_SIZE
    room = slots(limit) if limit is not None else {}

    if engine == "spark":
        started = SparkEngine(master, progress)
    else:
        started = DuckEngine(memory_limit, temp_dir, threads, progress)
    with started as running:
        running.count(files, splitter)
        totals = running.aggregate(min_count)
        best = {n: Best(room.get(n)) for n in sql.LENGTHS[1:]}
        for n in best:
            spans = [(i, j) for j in range(1, n + 1) for i in range(1, j + 1)]
            for phrases, columns in running.candidates(n):
                counts = dict(zip(spans, columns))
                best[n].add(phrases, score_phrases(counts, totals, n, score), counts[1, n])
        entries = list(merge({n: kept.ranked() for n, kept in best.items()}))
        covered, end = None, limit if limit is not None else 0
        if coverage is not None:
            table = PhraseTable.build((slot, phrase.text) for slot, phrase in entries)
            gained = np.zeros(entries[-1][0] + 1 if entries else 0, dtype=np.int64)
            for slot, amount in running.cover(files, splitter, table):
                if slot >= 0:
                    gained[slot] += amount
            end = smallest_size(gained, totals[1], coverage)
            covered = int(gained[:end].sum())
    chosen = [phrase for slot, phrase in entries if slot < end]
    return Built(chosen, end, {n: kept.seen for n, kept in best.items()}, totals[1], covered)


def write_list(path: str, phrases: Iterable[Phrase]) -> None:
    """Write one phrase a line, then TAB, score, TAB, count; gzip where the name ends in ``.gz``. The file appears
    when it is complete.

    Raises:
        UsageError: it can't be written.
    """
    with replacing(path) as part, open(part, "wb") as raw:
        # no name and no time in gzip's header: the same list is the same file
        file = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if path.endswith(".gz") else raw
        for phrase in phrases:
            file.write(phrase.line().encode("utf-8"))
        if file is not raw:
            file.close()


def count_by_length(phrases: Iterable[Phrase]) -> Dict[int, int]:
    """Number of phrases by number of words."""
    found: Dict[int, int] = {}
    for phrase in phrases:
        n = phrase.text.count(" ") + 1
        found[n] = found.get(n, 0) + 1
    return dict(sorted(found.items()))
