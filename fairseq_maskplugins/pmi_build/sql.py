"""The SQL that adds partial counts up, in words that DuckDB and Spark both understand (no fairseq).

Tables, for ``n`` from 2 to 5: ``grams1 (w1, word, c)`` and ``grams{n} (w1 .. wn, c)`` hold partial counts; ``words1``
every word; ``scored{n} (w1 .. wn, c_1_1 .. c_1_n)`` the n-grams with enough occurrences, ``c_i_j`` being the number of
occurrences of their words i to j. Only integers are computed here: scores come from them in one place, ``score.py``.
"""

from typing import List

from .count import MAX_N

LENGTHS = range(1, MAX_N + 1)


def totals() -> str:
    """The corpus's number of n-grams for every n."""
    one = "SELECT {0} AS n, CAST(COALESCE(SUM(c), 0) AS BIGINT) AS total FROM grams{0}"
    return " UNION ALL ".join(one.format(n) for n in LENGTHS) + " ORDER BY n"


def words() -> str:
    """Makes ``words1``. ``word`` and ``other`` differ where two words have the same key."""
    return "SELECT w1, MIN(word) AS word, MAX(word) AS other, CAST(SUM(c) AS BIGINT) AS c_1_1 FROM grams1 GROUP BY w1"


def collisions() -> str:
    return "SELECT word, other FROM words1 WHERE word <> other"


def scored_words(min_count: int) -> str:
    """Makes ``scored1``."""
    return f"SELECT w1, word, c_1_1 FROM words1 WHERE c_1_1 >= {min_count}"


def scored(n: int, min_count: int) -> str:
    """Makes ``scored{n}`` from ``grams{n}`` and ``scored{n-1}``.

    An n-gram occurs at most as often as its first n-1 words and as its last n-1 words: without enough of these it can't
    have enough occurrences, and is left out before anything is grouped. They bring along the counts of all parts.
    """
    prefix = " AND ".join(f"p.w{i} = g.w{i}" for i in range(1, n))
    suffix = " AND ".join(f"s.w{i} = g.w{i + 1}" for i in range(1, n))
    columns = _columns(n)
    grouped = ", ".join(f"g.{column}" for column in columns)
    parts = [f"p.{count(i, j)}" for j in range(1, n) for i in range(1, j + 1)]
    parts += [f"s.{count(i, n - 1)} AS {count(i + 1, n)}" for i in range(1, n)]
    return (
        f"WITH counted AS (SELECT {grouped}, CAST(SUM(g.c) AS BIGINT) AS c FROM grams{n} g "
        f"WHERE EXISTS (SELECT 1 FROM scored{n - 1} p WHERE {prefix}) "
        f"AND EXISTS (SELECT 1 FROM scored{n - 1} s WHERE {suffix}) "
        f"GROUP BY {grouped} HAVING SUM(g.c) >= {min_count}) "
        f"SELECT {grouped}, {', '.join(parts)}, g.c AS {count(1, n)} FROM counted g "
        f"JOIN scored{n - 1} p ON {prefix} JOIN scored{n - 1} s ON {suffix}"
    )


def candidates(n: int, where: str = "1 = 1") -> str:
    """The n-grams of ``scored{n}`` spelled out: ``phrase`` and all ``c_i_j`` (in the order of :func:`counts`)."""
    phrase = " || ' ' || ".join(f"v{i}.word" for i in range(1, n + 1))
    joins = " ".join(f"JOIN scored1 v{i} ON v{i}.w1 = g.w{i}" for i in range(1, n + 1))
    numbers = ", ".join(f"g.{name}" for name in counts(n))
    return f"SELECT {phrase} AS phrase, {numbers} FROM scored{n} g {joins} WHERE {where}"


def count(first: int, last: int) -> str:
    return f"c_{first}_{last}"


def counts(n: int) -> List[str]:
    return [count(i, j) for j in range(1, n + 1) for i in range(1, j + 1)]


def grams_columns(n: int) -> List[str]:
    """Columns of a table of partial counts, with their types."""
    return [f"{name} BIGINT" for name in _columns(n)] + (["word VARCHAR"] if n == 1 else []) + ["c BIGINT"]


def _columns(n: int) -> List[str]:
    return [f"w{i}" for i in range(1, n + 1)]
