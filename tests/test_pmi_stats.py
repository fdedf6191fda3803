"""``maskplugins pmi stats``: phrases found by trying everything, and how often they are masked whole."""

import math
import random
import re

import numpy as np
import pytest
from reference import pmi_build_reference as reference

from fairseq_maskplugins.cli import main
from fairseq_maskplugins.decoupled_mlm.blocks import pad_rows
from fairseq_maskplugins.decoupled_mlm.plan import Planner
from fairseq_maskplugins.errors import UsageError
from fairseq_maskplugins.maskers.base import build_masker
from fairseq_maskplugins.maskers.pmi import PMIConfig, PMIMasker
from fairseq_maskplugins.maskers.pmi import _drop_contained as drop_contained
from fairseq_maskplugins.maskers.runs import starts_after_gap
from fairseq_maskplugins.pmi_build import stats
from fairseq_maskplugins.pmi_build.build import build_list, write_list
from fairseq_maskplugins.pmi_build.rows import Word, number_words, read_words, split_rows
from fairseq_maskplugins.pmi_build.words import WordSplitter
from fairseq_maskplugins.rng import SequenceDraws
from fairseq_maskplugins.vocabulary import Vocabulary


def test_occurrences_equal_trying_everything():
    rng = random.Random(3)
    for _ in range(200):
        phrases = {" ".join(rng.choices("abc", k=rng.randint(1, 4))) for _ in range(rng.randint(1, 12))}
        words = rng.choices(["a", "b", "c", ""], [3, 3, 3, 1], k=rng.randint(0, 25))
        row = [Word(text, 10 + i, 11 + i) for i, text in enumerate(words)]
        found = stats.find_occurrences([[], row], phrases)
        expected = reference.occurrences(words, {phrase for phrase in phrases if " " in phrase})
        assert [(one.row, one.first - 10, one.end - 10) for one in found] == [(1, *pair) for pair in expected]
        covered, total = stats.count_covered([[], row], found)
        assert covered == len({i for first, end in expected for i in range(first, end)})
        assert total == sum(word != "" for word in words)


def plan_inputs(seed=5, rows=40):
    rng = random.Random(seed)
    lines = [" ".join(rng.choices("abcdefgh", k=rng.randint(0, 30))) for _ in range(rows)]
    vocabulary, words, tokens = number_words(split_rows("\n".join(lines), WordSplitter(), 100))
    return vocabulary, words, pad_rows(tokens, vocabulary.pad, vocabulary.bos)


def test_masked_phrases_are_counted_as_by_loops():
    vocabulary, words, tokens = plan_inputs()
    found = stats.find_occurrences(words, {"a b", "c d e", "f f", "h a"})
    assert len(found) > 20
    planner, ids, rates = (Planner(build_masker("uniform", None, vocabulary)), np.arange(len(tokens)), [0.2, 0.5, 0.9, 1.0])
    expected = [0] * len(rates)
    for epoch in (1, 2, 3):
        plan = planner.draw(tokens, SequenceDraws(8, epoch, ids))
        for one in found:
            for i, rate in enumerate(rates):
                limit = rate * plan.count[one.row]
                expected[i] += all(plan.depth[one.row, t] <= limit for t in range(one.first, one.end))
    masked = stats.count_masked(planner, tokens, ids, found, rates, seed=8, epochs=3)
    assert masked.tolist() == expected
    assert masked[-1] == 3 * len(found) and 0 < masked[0] < masked[1] < masked[2]
    assert stats.count_masked(planner, tokens, ids, [], rates, 8, 3).tolist() == [0] * len(rates)


def test_uniform_masking_meets_its_computed_probability():
    """One phrase in each of 400 rows of its own, so that trials are independent; 5 standard deviations."""
    line = "x a b c y z w"
    vocabulary, words, tokens = number_words(split_rows("\n".join([line] * 400), WordSplitter(), 100))
    tokens = pad_rows(tokens, vocabulary.pad, vocabulary.bos)
    found = stats.find_occurrences(words, {"a b c"})
    planner, epochs = Planner(build_masker("uniform", None, vocabulary)), 25
    trials = epochs * len(found)
    for rate in (0.3, 0.5, 0.75):
        # of 7 tokens, 7 rate are selected on average: m of them with probability 1 - u, m + 1 with u
        m, u = divmod(7 * rate, 1)
        p = sum(w * math.comb(4, int(k) - 3) / math.comb(7, int(k)) for k, w in ((m, 1 - u), (m + 1, u)) if k >= 3)
        assert stats.uniform_probability(np.array([3]), np.array([7.0]), rate) == pytest.approx(p, rel=1e-12)
        masked = stats.count_masked(planner, tokens, np.arange(400), found, [rate], seed=1, epochs=epochs)[0]
        assert abs(masked - trials * p) < 5 * math.sqrt(trials * p * (1 - p))
    assert stats.uniform_probability(np.array([2, 5]), np.array([9.0, 9.0]), 1.0) == 1.0


def test_rows_are_detokenised_with_the_tokens_of_each_word():
    symbols = ["<s>", "\u2581", "Har", "bour", ".", "\u2581the", "\u2581(", "old", "\u2581--", "\u2581o'", "s.", "'"]
    begins = np.array([symbol.startswith(("<", "\u2581")) for symbol in symbols])
    maskable = np.arange(len(symbols)) > 0

    def read(*pieces, keep_case=False):
        ids = [symbols.index(piece) for piece in pieces]
        decode = lambda ids: "".join(symbols[i] for i in ids).replace("\u2581", " ").strip()  # noqa: E731
        return [tuple(word) for word in read_words(ids, begins[np.array(ids, dtype=int)], maskable, decode, keep_case)]

    cut = ("", 0, 0)
    # the mark of a word's begin is the word's own token, punctuation is not
    assert read("\u2581", "Har", "bour", ".", "\u2581the") == [("harbour", 0, 3), (".", 3, 4), ("the", 4, 5)]
    assert read("<s>", "\u2581the", keep_case=True) == [cut, ("the", 1, 2)]
    expected = [("(", 0, 1), ("old", 1, 2), ("--", 2, 3), ("the", 3, 4)]
    assert read("\u2581(", "old", "\u2581--", "\u2581the") == expected
    # a piece that holds punctuation and letters is the word's; punctuation inside a word stays
    assert read("\u2581o'", "s.") == [("o's", 0, 2), cut]
    assert read("Har", "'", "bour", keep_case=True) == [("Har'bour", 0, 3)]
    assert read() == [] and read(".", "'") == [(".'", 0, 2)] and read("\u2581") == [cut]


def test_phrases_are_those_of_the_masker(tmp_path):
    """With punctuation in list and text, attached or apart: the same tokens as the masker's units, by other means."""
    pieces = ["\u2581", "\u2581a", "\u2581B", "c", "\u2581(", ",", ".", "'", "\u2581&"]
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    symbols = specials + pieces
    maskable = np.arange(len(symbols)) >= len(specials)
    begins = np.array([symbol.startswith("\u2581") for symbol in symbols])
    texts = [b""] * len(specials) + [piece.strip("\u2581").encode() for piece in pieces]
    vocabulary = Vocabulary(1, 0, 2, 4, maskable, np.flatnonzero(maskable), None, lambda: begins, lambda: texts)
    decode = lambda ids: "".join(symbols[i] for i in ids).replace("\u2581", " ").strip()  # noqa: E731
    rng = random.Random(7)
    words = ["a", "b", "ac", "bc", "(a", "b,", "c.", "B'", ",", "&", "a,", "(", "a'c", ",."]
    many = 0
    for _ in range(50):
        lines = {" ".join(rng.choices(words, k=rng.randint(2, 4))) for _ in range(12)}
        (tmp_path / "list").write_text("\n".join(sorted(lines)) + "\n")
        masker = PMIMasker(PMIConfig(pmi_vocab=str(tmp_path / "list")), vocabulary)
        rows = np.array([[0, *rng.choices(range(len(specials), len(symbols)), k=800), 2]])
        can = maskable[rows]
        cut = masker.split_punctuation(rows, starts_after_gap(begins[rows], can), can)
        place = np.append(np.flatnonzero(cut), rows.shape[1] - 1)
        first, end = drop_contained(*masker.find_phrases(rows, can, cut, place[:-1]))
        expected = list(zip(place[first].tolist(), place[end].tolist()))
        row = read_words(rows[0], begins[rows[0]], maskable, decode)
        found = stats.find_occurrences([row], stats.read_list(str(tmp_path / "list")))
        # a mark of a word's begin with no text behind it is a word of no text to the masker, and none here
        assert [(one.first, one.end) for one in found] == expected
        many += len(found)
    assert many > 200


def run(capsys, *arguments):
    main(["pmi", "stats", *map(str, arguments)])
    return capsys.readouterr().out


def table(out):
    """``{rate: [numbers]}`` of the printed table."""
    rows = [line.split("\t") for line in out.splitlines() if re.match(r"[01]?\.?\d*\t", line)]
    return {float(row[0]): [float(cell) for cell in row[1:]] for row in rows}


def test_data_and_text_agree_with_the_builder(corpus, tmp_path, capsys):
    built = build_list([str(corpus / "train.txt")], min_count=5, coverage=0.5, temp_dir=str(tmp_path))
    write_list(str(tmp_path / "list.gz"), built.phrases)
    out = run(capsys, tmp_path / "list.gz", "--text", corpus / "train.txt", "--rows", 0)
    assert f"list.gz: {len(built.phrases)} phrases" in out
    assert f"coverage: {built.covered / built.words:.4f} of the words" in out
    options = ["--bpe", "sentencepiece", "--sentencepiece-model", corpus / "sp.model", "--sample-break-mode", "eos"]
    data = [tmp_path / "list.gz", corpus / "bin", "--rows", 0, *options]
    out = run(capsys, *data, "--masker", "uniform", "whole_word", "--rates", 0.15, 0.4, 1)
    # the same words, read back from pieces
    assert f"coverage: {built.covered / built.words:.4f} of the words" in out
    found = table(out)
    assert list(found) == [0.15, 0.4, 1.0]
    assert found[1.0][0] == found[1.0][2] == 1.0
    # pieces of a word are masked together: whole phrases far more often
    assert found[0.4][2] > 5 * found[0.4][0]
    base = float(re.search(r"\((\S+), computed\)", out).group(1))
    assert found[0.4][3] == pytest.approx(found[0.4][2] / base, rel=0.01)


@pytest.mark.parametrize(
    "options, message",
    [
        ("{dir}/none", "none: can't read the list of phrases: No such file"),
        ("{dir}/bad", r"bad: line 2 holds control characters: 'bad.x00word'"),
        ("{dir}/empty", "empty: the list of phrases is empty"),
        ("{dir}/list {bin} --text {dir}/list", "DATA and --text can't go together"),
        ("{dir}/list {bin} --masker nine", "--masker must be one of .*uniform.*, got 'nine'"),
        ("{dir}/list {bin} --rates 0", r"--rates must lie in \(0, 1\], got 0"),
        ("{dir}/list {bin} --rows -1", "--rows must be at least 0, got -1"),
        ("{dir}/list {bin} --tokens-per-sample 1", "--tokens-per-sample must be at least 2, got 1"),
        ("{dir}/list {bin} --split nine", r"nine\.bin: no such data set"),
        ("{dir}/list {bin} --bpe sentencepiece", "--bpe sentencepiece needs --sentencepiece-model"),
        ("{dir}/list --text {dir}/empty", "holds no words"),
        ("{dir}/list --text {dir}/bad", "none of its phrases is in these rows"),
    ],
)
def test_bad_arguments_end_in_one_line(corpus, tmp_path, options, message):
    (tmp_path / "bad").write_text("fine\t1\t2\nbad\x00word\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "list").write_text("not there\n")
    with pytest.raises(UsageError, match=message) as caught:
        main(["pmi", "stats", *options.format(dir=tmp_path, bin=corpus / "bin").split()])
    assert "\n" not in str(caught.value)


def test_any_registered_masker_can_be_measured(tmp_path, capsys, monkeypatch):
    """Also one that nobody here knows by name: it comes with its own options."""
    from dataclasses import dataclass, field

    from fairseq_maskplugins.maskers.base import MASKERS, Masker, MaskerConfig, Registered

    @dataclass
    class PairConfig(MaskerConfig):
        pair_size: int = field(default=2, metadata={"help": "tokens in a unit"})

    class Pairs(Masker):
        default_budget = "whole"

        def begin_units(self, tokens, maskable, draws):
            return np.broadcast_to(np.arange(tokens.shape[1]) % self.config.pair_size == 1, tokens.shape)

    monkeypatch.setitem(MASKERS, "pairs", Registered(Pairs, PairConfig))
    (tmp_path / "list").write_text("a b\t1.5\t20\n")
    (tmp_path / "text").write_text("a b x y z v\n" * 300)
    found = table(run(capsys, tmp_path / "list", "--text", tmp_path / "text", "--masker", "pairs", "--rates", 0.5, 1))
    # a pair of three is taken whole with probability 1 / 2: 1,500 draws, 5 standard deviations
    assert abs(found[0.5][0] - 0.5) < 5 * 0.5 / math.sqrt(1500)
    triple = ["--masker", "pairs", "--pair-size", 3, "--rates", 0.5]
    assert len(table(run(capsys, tmp_path / "list", "--text", tmp_path / "text", *triple))) == 1
