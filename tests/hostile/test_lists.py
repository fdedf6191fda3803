"""Lists of phrases, their cache, and text for ``pmi build`` and ``pmi stats``."""

import gzip
import json
import os
import shutil

import files
import numpy as np
import pytest
import zstandard
from guarded import check_line, command, guarded

from fairseq_maskplugins.maskers import pmi_vocab
from fairseq_maskplugins.maskers.phrase_hash import hash_phrases
from fairseq_maskplugins.maskers.pmi_vocab import load_phrases

MIB = 1 << 20
HEBREW = "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd"

# what the list is; what is said of it, or the number of its phrases of two words and more
LISTS = {
    "NUL bytes": (b"new york\nof\0the\n", "line 2 holds control characters"),
    "binary": (bytes(range(256)) * 40, "line 1"),
    "a line of 100 MB": (b"a " * (50 * MIB), "line 1 has more than 64 KiB"),
    "100 MB of tabs": (b"new york\n" + b"\t" * (100 * MIB), "line 2 has more than 64 KiB"),
    "a packed line of 256 MB": (lambda: files.gzip_bomb(256 * MIB, b"a "), "line 1 has more than 64 KiB"),
    "33 words": (b"a " * 33, "has a phrase of 33 words"),
    "invalid UTF-8": (b"new york\nof \xff\xfe the\n", "line 2 is not UTF-8"),
    "a surrogate": (b"new york\nof \xed\xa0\x80 the\n", "line 2 is not UTF-8"),
    "UTF-16": ("new york\n".encode("utf-16"), "is not UTF-8"),
    "Latin-1": ("caf\xe9 cr\xe8me\n".encode("latin1"), "line 1 is not UTF-8"),
    "a lone carriage return": (b"new york\rof the\n", "line 1 holds control characters"),
    "an escape sequence": (b"new \x1b[31myork\n", "line 1 holds control characters"),
    "a damaged gzip file": (gzip.compress(b"new york\n" * 1000)[:-9], "gzip file is damaged"),
    "gzip's first bytes alone": (b"\x1f\x8b", "gzip file is damaged"),
    "a count of 10,000 digits": (b"new york\t1\t" + b"9" * 10000 + b"x\n", "which is not an integer"),
    "a score that is text": (b"new york\tnew\n", "which is not a number"),
    "only marks of a byte order": (b"\xef\xbb\xbf\n", "line 1 has no phrase"),
    "Windows line ends": (b"new york\r\nof the\r\n", 2),
    "a mark of the byte order": (b"\xef\xbb\xbfnew york\nof the\n", 2),
    "right-to-left text": ("\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd\n\u202enew york\u202c\n".encode(), 2),
    "combining characters": ("cafe\u0301 cre\u0300me\ncaf\u00e9 cr\u00e8me\n".encode(), 2),
    "a thousand combining characters": (("a" + "\u0301" * 1000 + " b\n").encode(), 1),
    "the same line twice": (b"new york\nNew York\nnew  york\t3\n", 1),
    "specials": (b"<mask> <s>\n</s> <pad>\n", 2),
    "characters outside the first plane": ("\U0001f600 \U0001f469\u200d\U0001f680\n\U000e0001 a\n".encode(), 2),
    "noncharacters": ("\ufffe \uffff\n".encode(), 1),
    "line separators inside": ("new\u2028york\nof\u0085the\n".encode(), 2),
    "punctuation alone": (b"!!! ???\n... ,\n", 2),
    "32 words": (b"a " * 32, 1),
}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("name", LISTS)
def test_lists(name, tmp_path):
    content, expected = LISTS[name]
    path = tmp_path / "phrases.txt"
    path.write_bytes(content() if callable(content) else content)
    for what, read in (
        ("masker", lambda: load_phrases(str(path)).count),
        ("stats", lambda: command("pmi", "stats", path) or expected),
    ):
        outcome = guarded(read, megabytes=400)
        assert outcome.megabytes < 250, (what, outcome)
        if isinstance(expected, int):
            assert outcome[:2] == ("done", str(expected)), (what, outcome)
        else:
            check_line(outcome, path, expected)
    assert [p for p in os.listdir(tmp_path) if p.endswith("cache")] == ["phrases.txt.fold.pmi-cache"] * isinstance(
        expected, int
    )


@pytest.mark.parametrize("place", ["/dev/zero", "/dev/null", "/", "/no/such/list", "\x1b[31mred\nlist"])
def test_places_that_are_no_lists(place):
    check_line(guarded(load_phrases, place), "--pmi-vocab")


def cache_of(path):
    load_phrases(str(path))
    return f"{path}.fold.pmi-cache"


def rewrite(content, change=None, arrays=None, digest=True):
    """A cache with another header, and arrays that were changed; with ``digest`` its sum is right again."""
    start, head = len(pmi_vocab._MAGIC), pmi_vocab._HEADER
    info = json.loads(content[start:head])
    body = content[head:] if arrays is None else arrays(bytearray(content[head:]), info)
    if digest:
        info["digest"] = pmi_vocab._digest([bytes(body)])
    if change is not None:
        change(info)
    return (pmi_vocab._MAGIC + json.dumps(info).encode()).ljust(head) + bytes(body)


def fill(value, at=0, count=None):
    def arrays(body, info):
        end = len(body) if count is None else at + count
        body[at:end] = value * ((end - at) // len(value))
        return body

    return arrays


CACHES = {
    "empty": lambda c: b"",
    "its first line alone": lambda c: c[: len(pmi_vocab._MAGIC)],
    "cut off": lambda c: c[:-8],
    "longer": lambda c: c + bytes(8),
    "a changed bit": lambda c: c[:-20] + bytes([c[-20] ^ 1]) + c[-19:],
    "no JSON": lambda c: c[:100] + b"\xff" * 100 + c[200:],
    "nested JSON": lambda c: pmi_vocab._MAGIC + b"[" * 4000,
    "JSON of another kind": lambda c: pmi_vocab._MAGIC + b"[1]".ljust(4000),
    "a negative number": lambda c: rewrite(c, lambda info: info.update(count=-1)),
    "a huge number": lambda c: rewrite(c, lambda info: info.update(count=10**30)),
    "a text for a number": lambda c: rewrite(c, lambda info: info.update(count="3")),
    "huge tables": lambda c: rewrite(c, lambda info: info.update(bucket_bits=10**9)),
    "no tables": lambda c: rewrite(c, lambda info: info.update(bucket_bits=0)),
    "no lengths": lambda c: rewrite(c, lambda info: info.update(lengths=None)),
    "lengths of words that are none": lambda c: rewrite(c, lambda info: info.update(lengths=[2, 10**9, "x"])),
    "buckets that end nowhere": lambda c: rewrite(c, arrays=fill(b"\xff", at=8 * 5, count=68)),
    "hashes out of order": lambda c: rewrite(c, arrays=lambda b, i: b[32:40] + b[8:32] + b[:8] + b[40:]),
}


@pytest.mark.parametrize("name", CACHES)
def test_caches(name, tmp_path):
    """A cache that is not what was written is made anew; lookups are right."""
    path = tmp_path / "phrases.txt"
    phrases = ["new york", "of the", "in a", "san francisco", "the united states"]
    path.write_text("\n".join(phrases))
    cache = cache_of(path)
    with open(cache, "rb") as file:
        good = file.read()
    with open(cache, "wb") as file:
        file.write(CACHES[name](good))

    def look():
        table = load_phrases(str(path))
        hashes = hash_phrases([*phrases, "new jersey"], False)[0]
        return table.find(hashes).tolist(), table.lengths, table.find(np.arange(1 << 16, dtype=np.uint64)).tolist()

    outcome = guarded(look, megabytes=300)
    assert outcome[:2] == ("done", "([0, 1, 2, 3, 4], [2, 3], [])"), outcome
    with open(cache, "rb") as file:
        assert file.read() == good


def test_places_where_a_cache_can_t_be(tmp_path):
    """A folder or a pipe under the cache's name: the cache goes elsewhere, and nothing waits."""
    for make in (os.mkdir, os.mkfifo):
        path = tmp_path / f"{make.__name__}.txt"
        path.write_text("new york\n")
        make(f"{path}.fold.pmi-cache")
        assert guarded(lambda path=path: load_phrases(str(path)).count)[:2] == ("done", "1")


TEXTS = {
    "a line of 100 MB": (b"word " * (20 * MIB), "holds a line of more than 8 MiB"),
    "a long line at the end": (b"a b\n" * 9000 + b"x" * (9 * MIB), "holds a line of more than 8 MiB"),
    "a packed line of 256 MB": (lambda: files.gzip_bomb(256 * MIB, b"word "), "holds a line of more than 8 MiB"),
    "the same by zstd": (
        lambda: zstandard.ZstdCompressor(level=3).compress(b"word " * (20 * MIB)),
        "holds a line of more than 8 MiB",
    ),
    "a window of 2 GB": (b"\x28\xb5\x2f\xfd\x00\xa8" + b"\x01\x00\x00" * 50, "damaged zstd file"),
    "damaged zstd": (zstandard.compress(b"new york\n" * 1000)[:-5], "damaged zstd file"),
    "damaged gzip": (gzip.compress(b"new york\n" * 1000)[:-5], "damaged gzip file"),
    "rubbish after gzip": (gzip.compress(b"new york\n" * 100) + b"PK\x03\x04", "damaged gzip file"),
    "invalid UTF-8": (b"new york\n" * 100 + b"\xff\n", "line 101 is not UTF-8"),
    "invalid UTF-8 in gzip": (gzip.compress(b"new york\n" * 100 + b"\xff\n"), "line 101 is not UTF-8"),
    "empty": (b"", "no phrase occurs"),
    "NUL bytes": (b"new york\0" * 100, "new york"),
    "a mark of the byte order": (b"\xef\xbb\xbf" + b"new york\n" * 100, "new york"),
    "Windows line ends": (b"new york\r\n" * 100, "new york"),
    "specials": (b"<mask> <s> new york </s>\n" * 100, "new york"),
    "right-to-left text": (f"{HEBREW}\n".encode() * 100, HEBREW),
    "combining characters": ("cafe\u0301 cre\u0300me\n".encode() * 100, "cafe\u0301 cre\u0300me"),
    "quotes and escapes of SQL": (b"o'brien new\\';--york \\n\n" * 100, "o'brien new\\';--york"),
    "many members": (gzip.compress(b"new york\n") * 2000, "new york"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_for_pmi_build(name, tmp_path):
    content, expected = TEXTS[name]
    path, out = tmp_path / "text", tmp_path / "list"
    path.write_bytes(content() if callable(content) else content)
    work = tmp_path / "work"
    work.mkdir()
    options = ["--output", out, "--memory-limit", "256MB", "--temp-dir", work, "--threads", 1]
    outcome = guarded(command, "pmi", "build", path, *options, megabytes=2500)
    assert outcome.megabytes < 400, outcome
    assert not os.listdir(work)
    if outcome.kind == "done":
        assert expected in out.read_text(encoding="utf-8")
        assert guarded(load_phrases, str(out)).kind == "done"  # what we write we read
    else:
        check_line(outcome, expected)
        assert not out.exists()


@pytest.mark.parametrize("name", [n for n, (_, said) in TEXTS.items() if "line" in said or "damaged" in said])
def test_text_for_pmi_stats(name, tmp_path):
    content, expected = TEXTS[name]
    path, phrases = tmp_path / "text", tmp_path / "list"
    path.write_bytes(content() if callable(content) else content)
    phrases.write_text("new york\n")
    outcome = guarded(command, "pmi", "stats", phrases, "--text", path, megabytes=900)
    check_line(outcome, path, expected)
    assert outcome.megabytes < 400, outcome


def test_sentencepiece_models(corpus, tmp_path):
    """Bits flipped in a model of ``--words sentencepiece``."""
    good = (corpus / "sp.model").read_bytes()
    shutil.copy(corpus / "train.txt", tmp_path / "text")
    for content in [b"", b"text\n" * 100, bytes(1000), *files.mutations(good, 15)]:
        (tmp_path / "sp.model").write_bytes(content)
        options = ["--words", "sentencepiece", "--sentencepiece-model", tmp_path / "sp.model"]
        outcome = guarded(command, "pmi", "stats", corpus / "phrases.txt", "--text", tmp_path / "text", *options)
        assert outcome.kind in ("done", "refused"), outcome
        assert outcome.megabytes < 300, outcome
