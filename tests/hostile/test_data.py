"""Dictionaries, data directories and plain options: what ``show-masks``, ``pmi stats`` and the task read."""

import itertools
import random
import shutil

import files
import harness
import pytest
from guarded import check_line, command, guarded

import fairseq_maskplugins  # noqa: F401  (registers)

# what is put behind the dictionary's own lines; what is said, or None where it is read
DICTIONARIES = {
    "a word twice": (b"zebra 5\nzebra 6\n", "Duplicate word found"),
    "a word twice, the second marked": (b"zebra 5\nzebra 6 #fairseq:overwrite\n", None),
    "<mask>": (b"<mask> 1\n", None),
    "<mask> twice": (b"<mask> 1\n<mask> 2\n", "Duplicate word found"),
    "specials": (b"<s> 1\n", "Duplicate word found"),
    "specials, marked": (b"<s> 1 #fairseq:overwrite\n</s> 1 #fairseq:overwrite\n", None),
    "no count": (b"zebra\n", "can't read the dictionary"),
    "a count that is text": (b"zebra many\n", "can't read the dictionary"),
    "a negative count": (b"zebra -5\n", "must have a count in [0, 2^63)"),
    "a count of 4,000 digits": (b"zebra " + b"9" * 4000 + b"\n", "must have a count in [0, 2^63)"),
    "a count of 10^7 digits": (b"zebra " + b"9" * 10**7 + b"\n", "can't read the dictionary"),
    "an empty word": (b" 5\n", None),
    "invalid UTF-8": (b"\xff\xfe 5\n", "can't read the dictionary"),
    "NUL bytes": (b"ze\0bra 5\n", None),
    "an escape sequence": (b"\x1b[31mzebra 5\nzebra\x07 5\n", None),
    "an escape sequence twice": (b"\x1b[31mzebra 5\n\x1b[31mzebra 5\n", "Duplicate word found"),
    "Windows line ends": (b"zebra 5\r\ngnu 4\r\n", None),
    "right-to-left text": ("\u05e9\u05dc\u05d5\u05dd 5\n\u202egnu 4\n".encode(), None),
    "combining characters": ("e\u0301 5\n\u0301 4\n\u200b 3\n".encode(), None),
    "padding words": (b"madeupword9990 0\nmadeupword9991 0\n", None),
    "a line of 50 MB": (b"z" * (50 << 20) + b" 5\n", "at most 10000 characters"),
    "an empty line": (b"\n", "can't read the dictionary"),
}


@pytest.fixture
def data(corpus, tmp_path):
    shutil.copytree(corpus / "bin", tmp_path / "bin")
    return tmp_path / "bin"


def readers(data, corpus):
    yield "show-masks", ["show-masks", data, "--rows", 3, "--measure", 8, "--html", data / "page.html"]
    yield "pmi stats", ["pmi", "stats", corpus / "phrases.txt", data, "--rows", 4]


@pytest.mark.parametrize("name", DICTIONARIES)
def test_dictionaries(name, data, corpus):
    more, said = DICTIONARIES[name]
    with open(data / "dict.txt", "ab") as file:
        file.write(more)
    for reader, arguments in readers(data, corpus):
        outcome = guarded(command, *arguments, megabytes=1500)
        assert outcome.megabytes < 900, (reader, outcome)
        if said is not None:
            check_line(outcome, data / "dict.txt", said)
        elif reader == "show-masks":
            assert outcome.kind == "done", outcome
            page = (data / "page.html").read_text(encoding="utf-8")
            assert page.replace("\n", "").isprintable()
        else:  # without --bpe a symbol is a word, and those of the list may all be missing
            assert outcome.kind == "done" or "none of its phrases" in outcome.text, outcome


@pytest.mark.parametrize(
    "content, said",
    [(b"", "/bin/dict.txt: holds no words"), (bytes(1000), "dict.txt"), (b"\xef\xbb\xbfzebra 5\n", "")],
    ids=["empty", "zeros", "a mark of the byte order"],
)
def test_other_dictionaries(content, said, data, corpus):
    (data / "dict.txt").write_bytes(content)
    for _, arguments in readers(data, corpus):
        check_line(guarded(command, *arguments), said)


def test_dictionaries_of_checkpoints(data, tmp_path):
    """The same file, at the commands that bring it together with a model's rows."""
    run = tmp_path / "run"
    harness.train(data, run, "--max-update", 1)
    for more, said in ((b"zebra 5\nzebra 5\n", "Duplicate"), (b"\xff 5\n", "can't read"), (b"zebra 5\n", "rows")):
        with open(data / "dict.txt", "ab") as file:
            file.write(more)
        exporting = ["export-hf", run / "checkpoint_last.pt", tmp_path / "hf", "--no-tokenizer"]
        check_line(guarded(command, *exporting, "--dict", data / "dict.txt"), said)
        check_line(guarded(command, "correct-embeddings", run / "checkpoint_last.pt", tmp_path / "out.pt"), said)
        outcome = guarded(command, "fill-mask", run / "checkpoint_last.pt", data, "a <mask>")
        assert outcome.kind == "refused", outcome
        data.joinpath("dict.txt").write_bytes(data.joinpath("dict.txt").read_bytes()[: -len(more)])


def damaged(good):
    """A byte of each field changed, fields at their limits, and mutations."""
    rng = random.Random(3)
    yield from (b"", bytes(100))
    for at in (26, 30, 34, 26 + 4 * 200, 26 + 4 * 200 + 8, len(good) - 4):
        yield good[:at] + rng.choice([b"\xff" * 4, b"\x7f" * 4, b"\x80\0\0\0", bytes(4)]) + good[at + 4 :]
    for at in range(0, 30, 2):
        yield good[:at] + bytes([rng.randrange(256)]) + good[at + 1 :]
    yield from files.mutations(good, 40)


def check_damaged(name, count, data, corpus, names):
    good = (data / name).read_bytes()
    for content in itertools.islice(damaged(good), count):
        (data / name).write_bytes(content)
        for reader, arguments in readers(data, corpus):
            if reader not in names:
                continue
            outcome = guarded(command, *arguments)
            assert outcome.kind in ("done", "refused"), outcome
            assert outcome.megabytes < 300, outcome
            if outcome.kind == "refused":
                check_line(outcome)


@pytest.mark.parametrize("name", ["train.idx", "train.bin"])
def test_damaged_data(name, data, corpus):
    check_damaged(name, 20, data, corpus, ["show-masks"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train.idx", "train.bin"])
def test_more_damaged_data(name, data, corpus):
    check_damaged(name, 1000, data, corpus, ["show-masks", "pmi stats"])


@pytest.mark.parametrize(
    "word, said", [("<mask>", "holds <mask> itself"), ("<s>", None), ("</s>", None), ("<pad>", None)]
)
def test_specials_in_the_text(word, said, corpus, tmp_path):
    """What ``fairseq-preprocess`` makes of them: ``<mask>`` is refused, where the dictionary has it."""
    for split in ("train", "valid"):
        text = "\n".join(f"{word} a day {word}" if n % 10 == 0 else "a day in spring" for n in range(100))
        (tmp_path / f"{split}.txt").write_text(text + "\n")
    harness.preprocess(tmp_path / "train.txt", tmp_path / "valid.txt", tmp_path / "bin")
    outcome = guarded(command, "show-masks", tmp_path / "bin", "--rows", 2, "--measure", 8)
    if said:
        check_line(outcome, "line 1", said)
    else:
        assert outcome.kind == "done", outcome


NUMBERS = [
    "nan",
    "inf",
    "-inf",
    "-0",
    "1e400",
    "1e-400",
    "0x10",
    "",
    "9" * 5000,
    "1,5",
    "\u0663",
    "1_0",
    "\0",
    "--",
    "0.5;",
]
OPTIONS = [
    ["show-masks", "{data}", "--mask-prob"],
    ["show-masks", "{data}", "--corruption-rate"],
    ["show-masks", "{data}", "--mask-prob-final"],
    ["show-masks", "{data}", "--mask-stdev"],
    ["show-masks", "{data}", "--seed"],
    ["show-masks", "{data}", "--epoch"],
    ["show-masks", "{data}", "--tokens-per-sample"],
    ["show-masks", "{data}", "--masker"],
    ["show-masks", "{data}", "--masker", "span", "--span-unit", "token", "--span-lengths"],
    ["pmi", "build", "{text}", "--output", "{out}", "--memory-limit"],
    ["pmi", "build", "{text}", "--output", "{out}", "--min-count"],
    ["pmi", "build", "{text}", "--output", "{out}", "--coverage"],
    ["pmi", "build", "{text}", "--output", "{out}", "--threads"],
    ["pmi", "build", "{text}", "--words", "x", "--output"],
    ["pmi", "stats", "{phrases}", "{data}", "--rates"],
    ["pmi", "stats", "{phrases}", "{data}", "--seed"],
    ["pmi", "stats", "{phrases}", "{data}", "--masker"],
]


def check_values(option, values, corpus, tmp_path):
    """Done, refused by us, or by argparse, which names the option and ends with status 2."""
    names = {
        "data": corpus / "bin",
        "text": corpus / "valid.txt",
        "out": tmp_path / "list",
        "phrases": corpus / "phrases.txt",
    }
    arguments = [part.format(**names) for part in option]
    more = ["--measure", "4", "--rows", "1"] if option[0] == "show-masks" else []
    for value in values:
        outcome = guarded(command, *arguments, value, *more)
        fine = outcome.kind in ("done", "refused") or outcome.text == "SystemExit: 2"
        assert fine, (value, outcome)
        if outcome.kind == "refused":
            check_line(outcome)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: " ".join(option[-1:] + option[:2]))
def test_values_of_options(option, corpus, tmp_path):
    check_values(option, ["nan", "1e400", "9" * 5000, "\0"], corpus, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: " ".join(option[-1:] + option[:2]))
def test_more_values_of_options(option, corpus, tmp_path):
    check_values(option, NUMBERS, corpus, tmp_path)
