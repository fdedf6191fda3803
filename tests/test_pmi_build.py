"""``maskplugins pmi build``: scores, the choice of the list, and what must not change it."""

import gzip
import math
import os
import random
import shutil
import subprocess
import sys
import warnings

import harness
import numpy as np
import pytest
from reference import pmi_build_reference as reference

from fairseq_maskplugins.errors import UsageError
from fairseq_maskplugins.pmi_build import build, count, score
from fairseq_maskplugins.pmi_build.build import build_list, write_list
from fairseq_maskplugins.pmi_build.text import read_batches
from fairseq_maskplugins.pmi_build.words import WordSplitter

COMMAND = [sys.executable, "-m", "fairseq_maskplugins.cli", "pmi", "build"]


@pytest.fixture(scope="module")
def lines():
    """Prose whose phrases recur, with rarer words mixed in so that scores and counts are many different ones."""
    rng = random.Random(7)
    out = []
    for line in harness.make_lines(600, seed=3):
        words = line.split(" ")
        for _ in range(3):
            words.insert(rng.randrange(len(words)), "x" + str(int(rng.paretovariate(0.7)) % 50))
        out.append(" ".join(words))
    return out


def write(path, lines):
    path.write_text("".join(line + "\n" for line in lines))
    return str(path)


def listed(files, tmp_path, **options):
    options = {"min_count": 3, "size": 400, "memory_limit": "512MB", "threads": 1, **options}
    files = [files] if isinstance(files, str) else files
    return [phrase.line()[:-1] for phrase in build_list(files, temp_dir=str(tmp_path), **options).phrases]


def test_scores_computed_by_hand(tmp_path):
    """Four lines "a b c", four lines "a", two lines "b c": 20 words (a 8, b 6, c 6), 10 bigrams (a b 4, b c 6), 4
    trigrams (a b c 4).

    p(a) = .4, p(b) = p(c) = .3; p(a b) = .4, p(b c) = .6; p(a b c) = 1.
    a b: .4 / (.4 * .3) = 10 / 3. b c: .6 / (.3 * .3) = 20 / 3.
    a b c: a|b|c 1 / .036, a b|c 1 / .12, a|b c 1 / .24; the least is 25 / 6.
    """
    path = write(tmp_path / "text", ["a b c"] * 4 + ["a"] * 4 + ["b c"] * 2)
    expected = {"b c": (20 / 3, 6), "a b c": (25 / 6, 4), "a b": (10 / 3, 4)}
    lines = listed(path, tmp_path, min_count=4, size=8)
    assert lines == [f"{text}\t{math.log(value):.6f}\t{number}" for text, (value, number) in expected.items()]
    # the numerator squared: b c .36 / .09 = 4, a b .16 / .12 = 4 / 3, a b c the same 25 / 6, for p(a b c) = 1
    expected = {"b c": (4, 6), "a b c": (25 / 6, 4), "a b": (4 / 3, 4)}
    lines = listed(path, tmp_path, min_count=4, size=8, score="frequency")
    assert lines == [f"{text}\t{math.log(value):.6f}\t{number}" for text, (value, number) in expected.items()]


@pytest.mark.parametrize("kind, power", [("pmi", 1), ("frequency", 2)])
@pytest.mark.parametrize("size", [37, 400, 100_000])
def test_equals_the_loops(lines, tmp_path, kind, power, size):
    path = write(tmp_path / "text", lines)
    expected = reference.build(lines, 3, size, power)
    assert len(expected) >= 30
    assert listed(path, tmp_path, size=size, score=kind) == expected


def test_ten_occurrences_are_too_few_and_eleven_are_enough(tmp_path):
    path = write(tmp_path / "text", ["ten times"] * 10 + ["eleven such times"] * 11)
    built = build_list([path], temp_dir=str(tmp_path))
    assert sorted((phrase.text, phrase.count) for phrase in built.phrases) == [
        ("eleven such", 11),
        ("eleven such times", 11),
        ("such times", 11),
    ]
    assert built.candidates == {2: 2, 3: 1, 4: 0, 5: 0}


def test_equal_scores_are_ordered_by_bytes(tmp_path):
    """Every word once in every pair: all scores are equal. U+FF5A is after U+1D41A in UTF-16, before it in UTF-8."""
    names = ["z", "\u00e9", "\uff5a", "\U0001d41a", "a"]
    path = write(tmp_path / "text", [f"{name} {name}x" for name in names for _ in range(3)])
    found = [line.split("\t")[0].split(" ")[0] for line in listed(path, tmp_path)]
    assert found == sorted(names, key=lambda name: name.encode())


def test_the_split_of_lengths():
    assert score.slots(800_000) == {2: 400_000, 3: 200_000, 4: 100_000, 5: 100_000}
    for size in range(1, 50):
        room, before = score.slots(size), score.slots(size - 1)
        assert sum(room.values()) == size
        assert all(room[n] >= before[n] for n in room)  # a longer list has all that a shorter one has


def test_a_length_with_too_few_candidates_leaves_its_places_empty(tmp_path):
    path = write(tmp_path / "text", [f"a{i} b{i}" for i in range(9) for _ in range(3)] + ["p q r"] * 3)
    built = build_list([path], min_count=3, size=16, temp_dir=str(tmp_path))
    assert build.count_by_length(built.phrases) == {2: 8, 3: 1}
    assert built.size == 16 and built.candidates == {2: 11, 3: 1, 4: 0, 5: 0}


def test_keeping_only_the_best_is_sorting_everything():
    rng = np.random.default_rng(5)
    micro = rng.integers(0, 1000, 150_000)
    names = [f"n{i}" for i in rng.permutation(len(micro))]
    best = score.Best(20)
    for part in range(0, len(micro), 10_000):
        chunk = slice(part, part + 10_000)
        best.add(names[chunk], micro[chunk], micro[chunk])
    assert best.seen == len(micro)
    expected = sorted(zip((-micro).tolist(), names))[:20]
    assert [(-phrase.micro, phrase.text) for phrase in best.ranked()] == expected


def test_order_threads_memory_and_batches_do_not_matter(lines, tmp_path, monkeypatch):
    whole = listed(write(tmp_path / "whole", lines), tmp_path)
    shuffled = random.Random(1).sample(lines, len(lines))
    parts = [write(tmp_path / f"part{i}", shuffled[i::3]) for i in range(3)]
    assert listed(parts, tmp_path, threads=2, memory_limit="256MB") == whole
    monkeypatch.setattr("fairseq_maskplugins.pmi_build.duck.CHUNK", 7)
    monkeypatch.setattr("fairseq_maskplugins.pmi_build.duck.BATCH_BYTES", 5000)
    assert listed(parts[::-1], tmp_path, memory_limit="1GB") == whole


def test_partial_counts_add_up_to_the_loops(lines):
    partial = count.count_batch("\n".join(lines), WordSplitter())
    words = dict(zip(partial.keys.tolist(), partial.words))
    expected = reference.count_ngrams(lines)
    assert dict(zip(partial.words, partial.counts.tolist())) == {word: c for (word,), c in expected[1].items()}
    for n, (columns, counts) in partial.grams.items():
        found = {}
        for *keys, number in zip(*(column.tolist() for column in columns), counts.tolist()):
            phrase = tuple(words[key] for key in keys)
            found[phrase] = found.get(phrase, 0) + number
        assert found == expected[n]


def test_colliding_hashes_split_groups_but_never_merge_them():
    rng = np.random.default_rng(2)
    row = rng.integers(0, 4, 3000)
    begins = np.arange(2999)
    hashes = (rng.integers(0, 3, 4**2).astype(np.uint64) << np.uint64(60))[row[:-1] * 4 + row[1:]]
    (first, second), counts = count._count_equal(row, hashes, begins, 2)
    found = np.zeros(16, dtype=np.int64)
    np.add.at(found, first * 4 + second, counts)
    assert len(counts) > 16  # groups were split
    assert found.tolist() == np.bincount(row[:-1] * 4 + row[1:], minlength=16).tolist()


def test_words_with_the_same_key_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(count, "word_key", lambda word: 1 if word in ("one", "other") else hash(word))
    with pytest.raises(UsageError, match="'one' and 'other' have the same 64-bit key"):
        listed(write(tmp_path / "text", ["one word", "other word"]), tmp_path)


def test_coverage_gives_the_shortest_list_that_reaches_it(lines, tmp_path):
    path = write(tmp_path / "text", lines)
    everything = listed(path, tmp_path, size=100_000)
    for share in (0.1, 0.5, 0.8):
        built = build_list([path], min_count=3, coverage=share, temp_dir=str(tmp_path))
        texts = [phrase.text for phrase in built.phrases]
        assert [phrase.line()[:-1] for phrase in built.phrases] == everything[: len(texts)]
        inside, total = reference.covered_words(lines, set(texts))
        assert (built.covered, built.words) == (inside, total)
        assert inside >= share * total > reference.covered_words(lines, set(texts[:-1]))[0]
    with pytest.raises(UsageError, match=r"--coverage 1 can't be reached: .* cover 0\.\d+ of the words"):
        build_list([path], min_count=3, coverage=1.0, temp_dir=str(tmp_path))
    with pytest.raises(UsageError, match="--coverage 0.5 can't be reached"):
        build_list([path], min_count=3, coverage=0.5, size=2, temp_dir=str(tmp_path))


def test_compressed_files_globs_and_standard_input_give_the_same_list(lines, tmp_path):
    import zstandard

    text = "".join(line + "\n" for line in lines)
    half = text.index("\n", len(text) // 2) + 1
    one, two = text[:half].encode(), text[half:].encode()
    (tmp_path / "plain.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
    # two members, and no newline at the end
    (tmp_path / "part.gz").write_bytes(gzip.compress(one) + gzip.compress(two[:-1]))
    (tmp_path / "part.zst").write_bytes(zstandard.compress(one) + zstandard.compress(two))
    expected = listed(str(tmp_path / "plain.txt"), tmp_path)
    for name in ("part.gz", "part.zst", "*.zst"):
        assert listed(str(tmp_path / name), tmp_path) == expected
    out = tmp_path / "list.txt"
    options = ["--min-count", "3", "--size", "400", "--memory-limit", "512MB", "--temp-dir", tmp_path]
    done = subprocess.run(
        [*map(str, COMMAND), "-", "--output", str(out), *map(str, options)], input=gzip.compress(one + two), cwd=harness.ROOT
    )
    assert done.returncode == 0
    assert out.read_text().splitlines() == expected


def test_the_parts_of_a_file_hold_every_line_once(tmp_path):
    rng = random.Random(4)
    lines = ["".join(rng.choices("ab \u00e9", k=rng.randrange(9))) for _ in range(200)]
    for text in ("\n".join(lines), "\n".join(lines) + "\n", "\n" * 50, "no newline at all"):
        path = tmp_path / "text"
        path.write_text(text)
        size = len(text.encode())
        for step in (1, 2, 7, 64, 1000):
            found = "".join(
                batch if batch.endswith("\n") else batch + "\n"
                for start in range(0, size, step)
                for batch in read_batches(str(path), start, min(size, start + step))
            )
            assert found == text if text.endswith("\n") else text + "\n"


def test_a_compressed_list_is_the_same_file_every_time(tmp_path):
    phrases = [score.Phrase("a b", -1_500_000, 3), score.Phrase("c d", 5, 2)]
    for name in ("one.gz", "two.gz"):
        write_list(str(tmp_path / name), phrases)
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()
    assert gzip.decompress((tmp_path / "one.gz").read_bytes()) == b"a b\t-1.500000\t3\nc d\t0.000005\t2\n"


@pytest.mark.spark
def test_spark_gives_the_same_list(lines, tmp_path, monkeypatch):
    """Byte for byte, also where files are read in parts, are compressed, or are damaged."""
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        warnings.warn("NO JAVA ON THIS MACHINE: --engine spark was NOT tested", stacklevel=1)
        pytest.skip("no Java: --engine spark was NOT tested")
    monkeypatch.setattr("fairseq_maskplugins.pmi_build.spark.split_files.__defaults__", (30_000,))
    plain = write(tmp_path / "plain.txt", lines[:200])
    (tmp_path / "rest.gz").write_bytes(gzip.compress("\n".join(lines[200:350]).encode()))
    files = [plain, str(tmp_path / "rest.gz")]
    built = {}
    for engine in ("duckdb", "spark"):
        built[engine] = build_list(files, min_count=3, coverage=0.7, engine=engine, master="local[2]", temp_dir=str(tmp_path))
        write_list(str(tmp_path / engine), built[engine].phrases)
    assert (tmp_path / "spark").read_bytes() == (tmp_path / "duckdb").read_bytes()
    assert built["spark"] == built["duckdb"] and len(built["spark"].phrases) > 50
    (tmp_path / "bad.txt").write_bytes(b"good\nb\xffd\n")
    with pytest.raises(UsageError, match=r"bad.txt: line 2 is not UTF-8 \(byte 0xff\)"):
        build_list([str(tmp_path / "bad.txt")], engine="spark", master="local[2]")
