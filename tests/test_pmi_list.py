"""Lists of phrases: what is read, what is refused, and the cache that processes share."""

import gzip
import os
import pickle
import subprocess
import sys

import harness
import numpy as np
import pytest

from fairseq_maskplugins.errors import UsageError
from fairseq_maskplugins.maskers import pmi_vocab
from fairseq_maskplugins.maskers.phrase_hash import hash_phrases
from fairseq_maskplugins.maskers.phrase_list import MAX_WORDS, parse_phrases
from fairseq_maskplugins.maskers.pmi_vocab import build_table, load_phrases

PHRASES = ["new york", "new york city", "of the"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The user's cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def write(path, text, compress=False):
    data = text if isinstance(text, bytes) else text.encode("utf-8")
    path.write_bytes(gzip.compress(data) if compress else data)
    return str(path)


def holds(table, *phrases):
    return np.isin(np.arange(len(phrases)), table.find(hash_phrases(phrases, False)[0])).tolist()


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "new york\nnew york city\nof the\n",
        "New York\r\nNEW  YORK CITY \r\n of the",
        "\ufeffnew york\t3.5\t11\nnew york city\t-inf\t1000\nof the\t1e-3\nword\nof the\t2\n",
    ],
)
def test_what_is_read(tmp_path, home, text, compress):
    table = load_phrases(write(tmp_path / "list", text, compress))
    assert holds(table, *PHRASES, "york city", "of", "the of", "word") == [True] * 3 + [False] * 4
    assert table.lengths == [2, 3] and table.count == 3


@pytest.mark.parametrize(
    "text, message",
    [
        ("new york\n\nof the\n", "line 2 has no phrase"),
        ("new york\n\t3\n", "line 2 has no phrase"),
        ("new york\t3\nof the\thigh\t4\n", "line 2 has the score 'high', which is not a number"),
        ("new york\t3\t4.5\n", "line 1 has the count '4.5', which is not an integer"),
        ("new york\t3\t4\t5\n", "line 1 has 4 fields"),
        ("new york\n" + "a " * (MAX_WORDS + 1) + "\n", f"line 2 has a phrase of {MAX_WORDS + 1} words"),
        ("new\x00york\n", "line 1 holds control characters"),
        (b"new york\ncaf\xe9 noir\n", "line 2 is not UTF-8"),
        ("", "the list of phrases is empty"),
    ],
)
@pytest.mark.parametrize("compress", [False, True])
def test_malformed_lists_are_named(tmp_path, home, text, message, compress):
    path = write(tmp_path / "list", text, compress)
    with pytest.raises(UsageError, match=message) as raised:
        load_phrases(path)
    assert str(raised.value).startswith(f"fairseq_maskplugins: --pmi-vocab {path}: ")
    assert "\n" not in str(raised.value)
    assert sorted(os.listdir(tmp_path)) == ["list"]


def test_unreadable_lists_are_named(tmp_path, home):
    with pytest.raises(UsageError, match="nowhere: can't read the list of phrases: No such file"):
        load_phrases(str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="Is a directory"):
        load_phrases(str(tmp_path))
    whole = gzip.compress(b"".join(b"phrase number %d\n" % i for i in range(10000)))
    with pytest.raises(UsageError, match="the gzip file is damaged after line"):
        load_phrases(write(tmp_path / "cut.gz", whole[: len(whole) // 2]))


def test_batches_of_lines_join(tmp_path, home):
    """More lines than one batch of the parser."""
    lines = [f"word{i} other" for i in range(100_001)]
    assert [len(batch) for batch in parse_phrases("list", "\n".join(lines).encode())] == [100_000, 1]
    table = load_phrases(write(tmp_path / "list", "\n".join(lines)))
    assert table.count == 100_001 and all(holds(table, *lines[::7777], lines[-1]))


@pytest.mark.parametrize("count", [1, 2, 17, 3000])
def test_find_equals_a_set(count):
    rng = np.random.RandomState(count)
    inside = rng.randint(0, 2**63, size=count).astype(np.uint64) * np.uint64(2) + np.uint64(1)
    inside[: count // 3] = inside[0] + np.arange(count // 3).astype(np.uint64)  # a crowded bucket
    table = build_table(inside, np.full(count, 2))
    asked = np.concatenate([inside, inside + np.uint64(1), rng.randint(0, 2**63, size=3000).astype(np.uint64)])
    expected = [i for i, value in enumerate(asked.tolist()) if value in set(inside.tolist())]
    assert table.find(asked).tolist() == expected


def test_eight_hundred_thousand_phrases_cost_little():
    """The arrays that are mapped, once a machine: far below 150 MB."""
    hashes = np.random.RandomState(0).randint(0, 2**63, size=800_000).astype(np.uint64) * np.uint64(2)
    table = build_table(hashes, np.full(len(hashes), 3))
    assert table.count == 800_000
    assert table.table.nbytes + table.begins.nbytes + table.bitmap.nbytes < 16e6


def count_builds(monkeypatch):
    builds = []
    build = pmi_vocab.build_from_list
    monkeypatch.setattr(pmi_vocab, "build_from_list", lambda *args: builds.append(args[0]) or build(*args))
    return builds


def test_the_cache_is_used_and_renewed(tmp_path, home, monkeypatch):
    builds = count_builds(monkeypatch)
    path = write(tmp_path / "list", "new york\n")
    first = load_phrases(path)
    again = load_phrases(path)
    assert len(builds) == 1
    assert isinstance(again.table.base.base, np.memmap) and not again.table.flags.writeable
    assert first.path == again.path == f"{path}.fold.pmi-cache"
    load_phrases(path, match_case=True)
    assert len(builds) == 2
    stamp = os.stat(path)
    write(tmp_path / "list", "old yorks"[:8] + "\n")  # as long as before, with the same time stamp
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert holds(load_phrases(path), "new york", "old york") == [False, True]
    assert len(builds) == 3
    assert holds(first, "new york") == [True]  # who has the old one mapped keeps it
    assert sorted(os.listdir(tmp_path)) == ["list", "list.case.pmi-cache", "list.fold.pmi-cache"]


@pytest.mark.parametrize("damage", ["cut", "empty", "foreign", "header"])
def test_a_damaged_cache_is_built_again(tmp_path, home, monkeypatch, damage):
    path = write(tmp_path / "list", "new york\n")
    cache = tmp_path / "list.fold.pmi-cache"
    load_phrases(path)
    data = cache.read_bytes()
    cache.write_bytes(
        {"cut": data[:-1], "empty": b"", "foreign": b"x" * len(data), "header": data.replace(b'"count"', b'"cound"')}[damage]
    )
    builds = count_builds(monkeypatch)
    assert holds(load_phrases(path), "new york") == [True]
    assert len(builds) == 1 and cache.read_bytes() == data


def refuse_writing_in(folder, monkeypatch):
    """As in a read-only folder, for a root user too."""
    replace = os.replace

    def refuse(source, target):
        if os.path.realpath(target).startswith(os.path.realpath(folder) + os.sep):
            raise PermissionError(13, "Permission denied")
        return replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)


def test_a_read_only_folder(tmp_path, home, monkeypatch):
    (tmp_path / "lists").mkdir()
    path = write(tmp_path / "lists" / "list", "new york\n")
    refuse_writing_in(tmp_path / "lists", monkeypatch)
    builds = count_builds(monkeypatch)
    first, second = load_phrases(path), load_phrases(path)
    assert len(builds) == 1 and os.path.dirname(first.path) == str(home / "fairseq_maskplugins")
    assert holds(second, "new york") == [True]
    assert os.listdir(tmp_path / "lists") == ["list"]


def test_nowhere_to_write(tmp_path, home, monkeypatch, caplog):
    path = write(tmp_path / "list", "new york\n")
    refuse_writing_in(tmp_path, monkeypatch)
    table = load_phrases(path)
    assert holds(table, "new york") == [True] and "so there is no cache" in caplog.text
    assert holds(pickle.loads(pickle.dumps(table)), "new york", "of the") == [True, False]


def test_pickled_tables_are_mapped_again(tmp_path, home):
    """As data workers that are spawned, not forked, get them: a path, not a copy."""
    path = write(tmp_path / "list", "".join(f"word{i} other\n" for i in range(50_000)))
    table = load_phrases(path)
    data = pickle.dumps(table)
    assert len(data) < 2000
    assert holds(pickle.loads(data), "word7 other", "word8 others") == [True, False]
    write(tmp_path / "list", "new york\n")
    load_phrases(path)
    with pytest.raises(UsageError, match="was removed or changed while it was in use"):
        pickle.loads(data)


CHILD = """
from fairseq_maskplugins.maskers import pmi_vocab
table = pmi_vocab.load_phrases({path!r})
print(table.count, table.path is not None)
"""


def test_eight_processes_at_once(tmp_path, home):
    """All of them have the whole table, and nothing but the cache is left."""
    path = write(tmp_path / "list", "".join(f"word{i} other\n" for i in range(5000)))
    code = CHILD.format(path=path)
    command = [sys.executable, "-c", code]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=harness.ROOT) for _ in range(8)]
    assert [process.communicate(timeout=120)[0] for process in started] == ["5000 True\n"] * 8
    assert sorted(os.listdir(tmp_path)) == ["list", "list.fold.pmi-cache"]


def test_a_pickled_data_set_masks_alike(corpus):
    """What a spawned data worker gets: small, and with the same masks."""
    options = f"--masker pmi --pmi-vocab {corpus}/phrases.txt --bpe sentencepiece --sentencepiece-model {corpus}/sp.model"
    task = harness.make_task(corpus / "bin", *options.split())[0]
    task.load_dataset("valid")
    dataset = task.datasets["valid"]
    data = pickle.dumps(dataset)
    assert len(data) < 200_000
    one, other = (d.collater([d[i] for i in range(4)])["mask_plan"]["depth"] for d in (dataset, pickle.loads(data)))
    assert one.equal(other)
