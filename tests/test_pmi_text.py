"""Reading text and splitting it into words for ``maskplugins pmi``, and its command line's complaints."""

import gzip
import os

import pytest
from reference import pmi_build_reference as reference

from fairseq_maskplugins.cli import main
from fairseq_maskplugins.errors import UsageError
from fairseq_maskplugins.pmi_build.text import find_files, read_batches
from fairseq_maskplugins.pmi_build.words import WordSplitter, strip_word


def segments(splitter, text):
    """Words by segment; empty segments left out."""
    words, ids, numbers = splitter.split(text)
    out = {}
    for i, number in zip(ids, numbers):
        out.setdefault(number, []).append(words[i])
    return list(out.values())


@pytest.mark.parametrize(
    "raw, expected",
    [
        ("word", ("word", False, False)),
        ("don't", ("don't", False, False)),
        ("(U.S.)", ("U.S", True, True)),
        ("$5", ("5", True, False)),
        ("\u201cso\u201d\u2014", ("so", True, True)),
        ("--", ("", True, False)),
        ("\u0939\u093f\u0902", ("\u0939\u093f\u0902", False, False)),  # ends in a vowel sign, which is no punctuation
        ("", ("", False, False)),
    ],
)
def test_punctuation_at_the_ends_is_stripped(raw, expected):
    assert strip_word(raw) == expected


def test_no_phrase_crosses_punctuation_or_lines():
    text = "In New York, the Old Town (so old) -- yes\nNext line.  Tab\there \u00a0\u3000 end"
    expected = [["in", "new", "york"], ["the", "old", "town"], ["so", "old"], ["yes"], ["next", "line"]]
    assert segments(WordSplitter(), text) == expected + [["tab", "here", "end"]]
    assert segments(WordSplitter(keep_case=True), text)[0] == ["In", "New", "York"]
    for line in text.split("\n"):
        assert segments(WordSplitter(), line) == [words for words in reference.split_words(line) if words]
    assert segments(WordSplitter(), "") == [] and segments(WordSplitter(), "... !\n\n") == []


def test_characters_as_words():
    text = "\u6211\u7231\u5317\u4eac\uff0cYouTube 2024 \u5e74\n\u4f60"
    assert segments(WordSplitter("character"), text) == [
        ["\u6211", "\u7231", "\u5317", "\u4eac"],
        ["youtube", "2024", "\u5e74"],
        ["\u4f60"],
    ]


def test_pieces_as_words(corpus):
    import sentencepiece

    model = str(corpus / "sp.model")
    pieces = sentencepiece.SentencePieceProcessor(model_file=model).encode("the garden, the Sea", out_type=str)
    plain = [piece.replace("\u2581", "").lower() for piece in pieces]
    expected = [[word for word in plain[: plain.index(",")] if word], [word for word in plain[plain.index(",") + 1 :] if word]]
    assert segments(WordSplitter("sentencepiece", model=model), "the garden, the Sea") == expected
    assert segments(WordSplitter("sentencepiece", model=model), "the\nsea") != [["the", "sea"]]


def test_files_are_found_once_and_sorted(tmp_path):
    for name in ("b.txt", "a.txt", "odd[1].txt"):
        (tmp_path / name).write_text("x")
    found = find_files([str(tmp_path / "*.txt"), str(tmp_path / "a.txt"), str(tmp_path / "odd[1].txt")])
    assert [os.path.basename(path) for path in found] == ["a.txt", "b.txt", "odd[1].txt"]


def _bad(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    return str(tmp_path / name)


def test_damaged_files_are_named(tmp_path):
    import zstandard

    text = "".join(f"line {i * 7919 % 10007}\n" for i in range(5000)).encode()
    cases = [
        (b"one\ntwo\nthr\xffee\n", r"line 3 is not UTF-8 \(byte 0xff\)"),
        (gzip.compress(text)[:-20], "damaged gzip file: it ends in the middle"),
        (gzip.compress(text)[:300] + b"????" + gzip.compress(text)[304:], "damaged gzip file"),
        (zstandard.compress(text)[:-20], "damaged zstd file: it ends in the middle"),
        (gzip.compress(b"fine\n\xfe"), r"line 2 is not UTF-8 \(byte 0xfe\)"),
    ]
    for number, (data, message) in enumerate(cases):
        path = _bad(tmp_path, f"file{number}", data)
        with pytest.raises(UsageError, match=f"file{number}: {message}"):
            list(read_batches(path))
    # lines are counted through batches
    path = _bad(tmp_path, "long", b"good line\n" * 500 + b"bad \xff\n")
    with pytest.raises(UsageError, match="line 501 is not UTF-8"):
        list(read_batches(path, batch_bytes=64))


def test_batches_of_compressed_text_are_short(tmp_path):
    """Members, padding and lines may end anywhere."""
    text = b"the quick brown fox jumps over the lazy dog\n" * 200_000
    data = gzip.compress(text) + b"\0" * 9000 + gzip.compress(b"last")
    batches = list(read_batches(_bad(tmp_path, "file", data), batch_bytes=1 << 20))
    assert max(map(len, batches)) <= (2 << 20) + 100 and "".join(batches).encode() == text + b"last"


@pytest.mark.parametrize(
    "options, message",
    [
        ("{dir}/none.txt", r"none\.txt: no such file"),
        ("{dir}/*.none", r"\*\.none: the pattern matches no file"),
        ("{dir}", "is a directory; give files"),
        ("{dir}/text --min-count 0", "--min-count must be at least 1, got 0"),
        ("{dir}/text --size 0", "--size must be at least 1, got 0"),
        ("{dir}/text --coverage 1.5", r"--coverage must lie in \(0, 1\], got 1.5"),
        ("{dir}/text --score log", "--score must be one of pmi, frequency, got 'log'"),
        ("{dir}/text --engine sqlite", "--engine must be one of duckdb, spark, got 'sqlite'"),
        ("{dir}/text --memory-limit lots", "--memory-limit must be a size such as 4GB or 512MB, got 'lots'"),
        ("{dir}/text --memory-limit 1MB", "--memory-limit must be at least 256MB, got 1MB"),
        ("{dir}/text --threads 0", r"--threads must lie in \[1, 1024\], got 0"),
        ("{dir}/text --temp-dir {dir}/none", "--temp-dir .*/none: can't write there: No such file"),
        ("{dir}/text --words letters", "--words must be one of whitespace, character, sentencepiece, got 'letters'"),
        ("{dir}/text --words sentencepiece", "--words sentencepiece and --sentencepiece-model FILE go together"),
        ("{dir}/text --sentencepiece-model x", "--words sentencepiece and --sentencepiece-model FILE go together"),
        ("{dir}/text --words sentencepiece --sentencepiece-model {dir}/text", "text: is not a sentencepiece model"),
        ("- --coverage 0.5", "--coverage reads the text twice"),
        ("{dir}/text", "no phrase occurs 11 times in 2 words"),
        ("{dir}/* --output {dir}/text", "--output .*/text: is one of the input files"),
        ("{dir}/text --master local", "--master is for --engine spark, and --engine is duckdb"),
    ],
)
def test_bad_arguments_end_in_one_line_and_leave_nothing(tmp_path, options, message):
    (tmp_path / "text").write_text("two words\n")
    arguments = ["pmi", "build", "--output", f"{tmp_path}/list", *options.format(dir=tmp_path).split()]
    with pytest.raises(UsageError, match=message) as caught:
        main(arguments)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == ["text"] and (tmp_path / "text").read_text() == "two words\n"


def test_a_file_that_is_named_twice_is_read_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("two words\n")
    (tmp_path / "link").symlink_to("text")
    assert find_files(["text", "te*", "./text", str(tmp_path / "text"), "link"]) == ["./text"]
