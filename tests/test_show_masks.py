"""``maskplugins show-masks``: what it counts, what it prints, and a page that needs nothing else."""

import html.parser
import json
import os
import re

import harness
import numpy as np
import pytest

from fairseq_maskplugins.cli import main
from fairseq_maskplugins.errors import UsageError
from fairseq_maskplugins.pieces import byte_alphabet
from fairseq_maskplugins.show_masks import measure
from fairseq_maskplugins.show_masks.measure import KEPT, MASKED, RANDOM, SAME, Token, Totals
from fairseq_maskplugins.show_masks.shade import join_words, render_section, render_shaded, render_weights
from fairseq_maskplugins.show_masks.svg import nice_ticks
from fairseq_maskplugins.show_masks.terminal import render_histogram, render_row
from fairseq_maskplugins.show_masks.texts import printable

YES, NO = True, False


def test_run_and_unit_lengths_by_hand():
    chosen = np.array([[1, 1, 0, 1], [1, 0, 0, 1], [0, 0, 0, 0]], dtype=bool)
    assert measure.run_lengths(chosen).tolist() == [2, 1, 1, 1]  # the end of a row ends a run
    maskable = np.array([[0, 1, 1, 1, 0], [0, 1, 0, 1, 1]], dtype=bool)
    starts = np.array([[0, 1, 0, 1, 0], [0, 1, 0, 1, 0]], dtype=bool)
    assert measure.unit_lengths(starts, maskable).tolist() == [2, 1, 1, 2]
    assert measure.histogram(np.array([1, 1, 3, 9]), 4).tolist() == [2, 0, 1, 1]
    assert measure.histogram(np.array([2])).tolist() == [0, 1]


def test_totals_by_hand():
    """Two copies of a row of four tokens in units: one masked, one random; one same, one masked but not predicted."""
    tokens = np.array([[0, 5, 6, 7, 8]] * 2)
    source = np.array([[0, 9, 5, 7, 8], [0, 5, 6, 7, 9]])
    corrupted = np.array([[0, 1, 1, 0, 0], [0, 0, 0, 1, 1]], dtype=bool)
    predicted = np.array([[0, 1, 1, 0, 0], [0, 0, 0, 1, 0]], dtype=bool)
    states = measure.classify(tokens, source, corrupted, mask=9)
    assert states.tolist() == [[KEPT, MASKED, RANDOM, KEPT, KEPT], [KEPT, KEPT, KEPT, SAME, MASKED]]
    totals = Totals()
    maskable = np.array([[0, 1, 1, 1, 1]], dtype=bool)
    totals.add(states, predicted, maskable, np.array([[0, 1, 0, 1, 1]], dtype=bool), copies=2)
    assert (totals.rows, totals.maskable, totals.predicted) == (1, 4, 3)
    assert totals.shares() == {"kept": 0.5, "masked": 0.25, "random": 0.125, "same": 0.125}
    assert totals.corruption_rate == 3 / 8 and totals.prediction_rate == 2 / 4
    assert totals.units.tolist() == [2, 1]
    assert totals.rate_at() == [None, 0.5, 0.5, 0.5, 0.5]


def test_brackets_and_colours():
    row = [
        Token("<s>", KEPT, NO, special=True),
        Token(" New", MASKED, YES, begins_unit=True),
        Token(" York", MASKED, YES),
        Token(" ci", RANDOM, YES, " ab", begins_unit=True),
        Token("ty", RANDOM, YES, "c"),
        Token(" is", MASKED, NO, begins_unit=True),
        Token(" big", SAME, YES, begins_unit=True),
        Token(".", KEPT, NO, begins_unit=True),
    ]
    assert render_row(row, colour=False) == "<s> [New York] {city>abc} [is]- (big)."
    coloured = render_row(row, colour=True)
    assert re.sub(r"\033\[[0-9;]*m", "", coloured) == "<s> New York city>abc is big."
    assert len(set(re.findall(r"\033\[([0-9;]+)m", coloured))) == 6  # special, four kinds, and the end of each
    assert render_histogram([1, 0, 3], width=6) == ["    1  25.00%  ##", "    3  75.00%  ######"]


def test_what_a_terminal_would_act_on_is_escaped():
    assert printable("a\033[31mé\u202e") == "a\\x1b[31mé\\u202e"


@pytest.mark.parametrize("high, expected", [(0.6, [0, 0.2, 0.4, 0.6]), (1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (128, [0, 50, 100])])
def test_ticks(high, expected):
    assert nice_ticks(0, high) == expected


OPTIONS = "--bpe sentencepiece --sentencepiece-model {corpus}/sp.model --tokens-per-sample 48 --mask-prob 0.4"
PMI = OPTIONS + " --masker pmi --pmi-vocab {corpus}/phrases.txt"


def show(corpus, options, *more):
    return main(["show-masks", str(corpus / "bin"), *options.replace("{corpus}", str(corpus)).split(), *map(str, more)])


def test_rows_and_rates_are_printed(corpus, capsys):
    """Without brackets a row is the text again; rates are those asked for; a phrase is in one pair of brackets."""
    assert show(corpus, PMI, "--rows", 30, "--leave-unmasked-prob", 0.25) == 0
    out = capsys.readouterr().out
    assert "\033" not in out  # not a terminal
    text = " ".join((corpus / "valid.txt").read_text().split())
    rows = re.findall(r"^sequence \d+: (.*)$", out, flags=re.M)
    shown = " ".join(re.sub(r"[\[\]()▁]|</?s>", "", row) for row in rows)
    assert len(rows) == 30
    assert "".join(shown.split()) in "".join(text.split())
    assert "[old captain]" in out or "[New York City]" in out
    selected = float(re.search(r"corruption rate  asked 0.4000  selected (\S+)", out).group(1))
    logged = float(re.search(r"corruption rate .* (\S+)$", out, flags=re.M).group(1))
    assert abs(selected - 0.4) < 0.02 and abs(logged - 0.3) < 0.04


def test_copies_and_symbols_without_a_tokenizer(corpus, capsys):
    assert show(corpus, "--masker span --span-unit token --corruption-rate 0.2 --prediction-rate 0.5", "--rows", 1) == 0
    out = capsys.readouterr().out
    assert "sequence 0, copy 3 of 3: <s>" in out and "]-" in out
    assert re.search(r"prediction rate  asked 0.5000  selected 0\.(49|50)", out)


class Page(html.parser.HTMLParser):
    """Counts elements, checks that they are closed in order, and keeps every address."""

    def __init__(self, text):
        super().__init__()
        self.open, self.count, self.addresses = [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.addresses += [value for name, value in attributes if name in ("src", "href", "xlink:href", "data")]
        if tag not in ("meta", "line", "circle", "path", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag in self.open[-1:]:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_stands_alone(corpus, tmp_path, capsys):
    page = tmp_path / "masks.html"
    assert show(corpus, PMI, "--rows", 3, "--html", page, "--random-token-prob", 0.2) == 0
    text = page.read_text(encoding="utf-8")
    found = Page(text)
    assert found.open == [] and found.addresses == [] and "url(" not in text and "@import" not in text
    assert found.count["svg"] == 3 and "script" not in found.count and "link" not in found.count
    for name in ("uniform", "whole_word", "span", "pmi"):
        assert f">{name}</text>" in text
    assert text.count('<p class="row') == 3 and '<span class="masked' in text and "<sub>" in text
    assert os.listdir(tmp_path) == ["masks.html"]


def test_the_page_says_which_maskers_are_left_out(corpus, tmp_path, capsys):
    page = tmp_path / "masks.html"
    assert show(corpus, OPTIONS, "--html", page) == 0
    assert "No line for pmi: --masker pmi needs --pmi-vocab" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "options, message",
    [
        ("--rows -1", "--rows must be at least 0, got -1"),
        ("--measure 0", "--measure must be at least 1, got 0"),
        ("--split test", "bin/test.bin and .*: no such data set"),
        ("--bpe sentencepiece", "--bpe sentencepiece needs --sentencepiece-model"),
        ("--html {corpus}/nowhere/page.html", "--html .*page.html: the folder .*nowhere does not exist"),
        ("--masker pmi " + OPTIONS, "--masker pmi needs --pmi-vocab"),
    ],
)
def test_bad_options_are_named(corpus, options, message):
    with pytest.raises(UsageError, match=message):
        show(corpus, options)


def gpt2_data(folder, text):
    """A byte-level vocabulary without merges but two, and data in it."""
    from fairseq.data.encoders.gpt2_bpe_utils import get_encoder

    alphabet = list(byte_alphabet())
    merges = [("Ġ", "n"), ("e", "w")]
    tokens = alphabet + ["".join(pair) for pair in merges]
    (folder / "encoder.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (folder / "vocab.bpe").write_text("#version\n" + "".join(f"{a} {b}\n" for a, b in merges), encoding="utf-8")
    encoder = get_encoder(str(folder / "encoder.json"), str(folder / "vocab.bpe"))
    (folder / "text.bpe").write_text("".join(" ".join(map(str, encoder.encode(line))) + "\n" for line in text))
    harness.preprocess(folder / "text.bpe", folder / "text.bpe", folder / "bin")


def test_phrases_in_byte_level_bpe(tmp_path, capsys):
    """GPT-2's own encoder over single bytes: accented letters are two pieces each, and no word is marked at line
    begins."""
    gpt2_data(tmp_path, ["New york is é à côté", "in new York, café noir ÉTÉ"] * 3)
    (tmp_path / "list").write_text("new york\ncafé noir\né à\n", encoding="utf-8")
    options = "--bpe gpt2 --gpt2-encoder-json {corpus}/encoder.json --gpt2-vocab-bpe {corpus}/vocab.bpe --mask-prob 1.0"
    options += " --masker pmi --pmi-vocab {corpus}/list --sample-break-mode eos --split train"
    assert show(tmp_path, options, "--rows", 2) == 0
    rows = re.findall(r"^sequence \d+: (.*)$", capsys.readouterr().out, flags=re.M)
    plain = [row.encode().decode("unicode_escape").encode("latin-1").decode() for row in rows]
    assert plain[0] == "<s> [New york] [is] [é à] [côté] </s>"
    assert plain[1] == "<s> [in] [new York][,] [café noir] [ÉTÉ] </s>"


def test_words_of_a_proposal_by_hand():
    """Six tokens, five maskable, two words of two pieces: a word's weight is the mean of n q over its pieces."""
    texts = ["<s>", " a<b", " new", "er", " York", "shire"]
    q = np.array([0.0, 0.05, 0.4, 0.2, 0.05, 0.3])
    words = join_words(texts, q, np.array([0, 1, 1, 1, 1, 1], dtype=bool))
    assert [word.text for word in words] == [" a<b", " newer", " Yorkshire"]
    assert [word.weight for word in words] == pytest.approx([0.25, 1.5, 0.875])
    assert render_weights(words) == "a<b:0.2 newer:1.5 Yorkshire:0.9"
    shaded, flat = render_shaded(words), render_shaded(words, uniform=True)
    assert "a&lt;b" in shaded and re.findall(r", ([\d.]+)\)", shaded) == ["0.06", "0.38", "0.22"]
    assert set(re.findall(r", ([\d.]+)\)", flat)) == {"0.25"}
    assert render_section([words], "x<y.pt").count('<p class="row') == 2
    # a piece after a special begins a word
    assert len(join_words(["a", "<unk>", "b"], np.array([0.5, 0, 0.5]), np.array([True, False, True]))) == 2


def test_proposal_of_a_checkpoint(corpus, tmp_path, capsys):
    options = "--criterion mapnet --mapnet-embed-dim 16 --mapnet-layers 0 --mapnet-warmup-updates 0 --max-update 2"
    harness.train(corpus / "bin", tmp_path, *options.split())
    page = tmp_path / "page.html"
    more = ["--rows", 2, "--measure", 2, "--checkpoint", tmp_path / "checkpoint_last.pt", "--html", page]
    assert show(corpus, OPTIONS, *more) == 0
    weights = [float(w) for w in re.findall(r":(\d+\.\d)", capsys.readouterr().out.split("proposal for sequence")[1])]
    assert len(weights) > 5 and 0.8 < sum(weights) / len(weights) < 1.2
    text = page.read_text(encoding="utf-8")
    assert "What MAP-Net would mask" in text and text.count("times as often as uniformly") >= 2 * len(weights)
    with pytest.raises(UsageError, match="nowhere.pt: no such checkpoint"):
        show(corpus, OPTIONS, "--checkpoint", "nowhere.pt")
