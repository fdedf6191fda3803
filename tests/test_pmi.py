"""PMI masker: phrases found as plain loops find them, in any tokenizer's pieces; overlaps settled by fair draws."""

import numpy as np
import pytest
import torch
from helpers import NSPECIAL, PAD, draw_plan, make_planner, make_vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st
from pmi_pieces import CITY, Pieces, make, units
from reference import pmi_reference as reference
from reference.plan_reference import units_of

from fairseq_maskplugins.decoupled_mlm.plan import select
from fairseq_maskplugins.decoupled_mlm.rates import Rates
from fairseq_maskplugins.errors import UsageError
from fairseq_maskplugins.maskers.phrase_hash import cut_punctuation, hash_bytes, hash_phrases, mix_word
from fairseq_maskplugins.rng import SequenceDraws


@pytest.fixture
def city():
    return Pieces(*CITY)


def test_two_words_of_two_pieces_are_one_unit_of_four(tmp_path, city):
    planner = make(tmp_path, city, ["city hamburger"])
    assert units(planner, city, "▁we ▁Ci ty ▁h am bur ger s") == ["▁we", "▁City", "▁hamburgers"]
    assert units(planner, city, "▁we ▁Ci ty ▁h am bur ger ▁like") == ["▁we", "▁City▁hamburger", "▁like"]
    planner = make(tmp_path, city, ["city yo rk", "city york"])
    found = units(planner, city, "▁Ci ty ▁YO RK ▁we")
    assert found == ["▁City▁YORK", "▁we"]


def test_the_longest_phrase_wins(tmp_path, city):
    planner = make(tmp_path, city, ["new york", "new york city", "york city"])
    for seed in range(10):
        assert units(planner, city, "▁we ▁New ▁York ▁Ci ty ▁we", seed) == ["▁we", "▁New▁York▁City", "▁we"]
        assert units(planner, city, "▁we ▁New ▁York ▁we", seed) == ["▁we", "▁New▁York", "▁we"]


def test_no_phrase_crosses_a_special(tmp_path, city):
    planner = make(tmp_path, city, ["new york", "york city"])
    assert units(planner, city, "▁New </s> ▁York ▁New ▁York") == ["▁New", "▁York", "▁New▁York"]
    for seed in range(10):  # nor does it compete with one that does not
        assert units(planner, city, "▁New </s> ▁York ▁Ci ty", seed) == ["▁New", "▁York▁City"]


def test_rows_do_not_join(tmp_path, city):
    """The last word of a row without ``</s>`` and the first of the next."""
    planner = make(tmp_path, city, ["new york", "york city"])
    tokens = np.array([city.row("▁we ▁we ▁New")[1:], city.row("▁York ▁Ci ty")[1:]])
    for seed in range(10):
        starts = planner.find_units(tokens, SequenceDraws(seed, 1, np.arange(2)))[0]
        assert starts.tolist() == [[True, True, True], [True, False, False]]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("▁we ▁( New ▁York ) , ▁like", None),  # filled in below
        ("▁New ▁York , ▁like", ["▁New▁York", ",", "▁like"]),
        ("▁New , ▁York ▁like", ["▁New,", "▁York", "▁like"]),
        ("▁like , ▁we", ["▁like,", "▁we"]),
        ("▁don ' t ▁like ) .", ["▁don't▁like", ")."]),
        ("▁-- ▁like", ["▁--", "▁like"]),
        ("▁$ 5 ▁million . ▁we", ["▁$5▁million", ".", "▁we"]),
        ("▁we ▁ 5 ▁million", ["▁we", "▁5▁million"]),
        ("▁we ▁ ) New ▁York", ["▁we", "▁)", "New▁York"]),
        ("▁state - of - the - art ▁Ci ty", ["▁state-of-the-art▁City"]),
    ],
)
def test_punctuation(tmp_path, text, expected):
    pieces = Pieces(*CITY, "New")
    planner = make(
        tmp_path, pieces, ["new york", "don't like", "$5 million", "5 million", "state-of-the-art city", "we new york"]
    )
    if expected is None:
        expected = ["▁we", "▁(", "New▁York", "),", "▁like"]
    assert units(planner, pieces, text) == expected


def test_a_list_may_hold_punctuation(tmp_path, city):
    """Attached or set apart, it is cut like the text."""
    for phrase in ("york, we", "york , we"):
        planner = make(tmp_path, city, [phrase])
        assert units(planner, city, "▁New ▁York , ▁we ▁like") == ["▁New", "▁York,▁we", "▁like"]


def test_case(tmp_path, city):
    assert units(make(tmp_path, city, ["NEW york"]), city, "▁New ▁YO RK") == ["▁New▁YORK"]
    exact = make(tmp_path, city, ["new york", "New YORK"], pmi_match_case=True)
    assert units(exact, city, "▁New ▁YO RK ▁New ▁York") == ["▁New▁YORK", "▁New", "▁York"]


def test_case_of_other_scripts(tmp_path):
    """A final sigma and a sharp s: folded, not lower-cased, so that pieces can be folded one by one."""
    pieces = Pieces(*"▁Ο ΔΟ Σ ▁ΜΕ ΓΑΣ ▁Stra ße".split())
    planner = make(tmp_path, pieces, ["οδος μεγας", "strasse οδοσ"])
    assert units(planner, pieces, "▁Ο ΔΟ Σ ▁ΜΕ ΓΑΣ ▁Stra ße ▁Ο ΔΟ Σ") == ["▁ΟΔΟΣ▁ΜΕΓΑΣ", "▁Straße▁ΟΔΟΣ"]


def test_pieces_that_cut_a_character(tmp_path):
    """Byte-level pieces: the two bytes of an accented letter, each in a piece of its own."""
    pieces = Pieces("▁caf", "A", "B", "▁noir")
    pieces.pieces[NSPECIAL + 1], pieces.pieces[NSPECIAL + 2] = "é".encode()[:1], "é".encode()[1:]
    planner = make(tmp_path, pieces, ["café noir"])
    assert units(planner, pieces, "▁caf A B ▁noir ▁caf ▁noir") == ["▁cafAB▁noir", "▁caf", "▁noir"]


def test_punctuation_that_is_cut_in_pieces(tmp_path):
    """Byte-level pieces: GPT-2 has curly quotes in two."""
    pieces = Pieces("▁A", "B", "C", "▁New", "▁York", ",", "▁D")
    for name, data in (("▁A", "“".encode()[:2]), ("B", "“".encode()[2:]), ("C", "”".encode()[2:]), ("▁D", "é".encode()[:1])):
        pieces.pieces[NSPECIAL + pieces.symbols.index(name)] = data
    planner = make(tmp_path, pieces, ["new york"])
    # the first two bytes of both quotes are the same: "A C" is the closing one, here at a word's end
    assert units(planner, pieces, "▁New ▁York ▁A C") == ["▁New▁York", "▁AC"]
    pieces.begins[NSPECIAL] = False
    assert units(planner, pieces, "▁New ▁York ▁A C , ▁York ▁A B ▁New") == ["▁New▁York", "▁AC,", "▁York▁AB", "▁New"]
    # a part of a letter is none, and neither is a character that stays cut
    assert units(planner, pieces, "▁New ▁D C ▁York ▁A") == ["▁New", "▁DC", "▁York▁A"]


def test_overlaps_are_settled_half_and_half(tmp_path, city):
    """ "new york" and "york city" on "new york city": each wins in half of 20,000 rows, within 4.5 standard errors;
    what the loser leaves is a word."""
    planner = make(tmp_path, city, ["new york", "york city"])
    tokens = np.repeat(city.rows("▁we ▁New ▁York ▁Ci ty"), 20000, axis=0)
    starts = planner.find_units(tokens, SequenceDraws(1, 1, np.arange(20000)))[0]
    first = (starts[:, 1:6] == [True, True, False, True, False]).all(axis=1)
    second = (starts[:, 1:6] == [True, True, True, False, False]).all(axis=1)
    assert (first | second).all()
    assert abs(first.mean() - 0.5) < 4.5 * 0.5 / 20000**0.5


def test_a_chain_of_three(tmp_path, city):
    """A overlaps B, B overlaps C: B wins if it is asked first, a third of the time; else A and C both do."""
    planner = make(tmp_path, city, ["we new york", "york city", "city like we"])
    tokens = np.repeat(city.rows("▁we ▁New ▁York ▁Ci ty ▁like ▁we"), 20000, axis=0)
    starts = planner.find_units(tokens, SequenceDraws(1, 1, np.arange(20000)))[0]
    middle = starts[:, 1:8].sum(axis=1) == 5  # we, new, york-city, like, we
    outer = starts[:, 1:8].sum(axis=1) == 3 - 1  # we-new-york, city-like-we
    assert (middle | outer).all()
    assert abs(middle.mean() - 1 / 3) < 4.5 * (2 / 9 / 20000) ** 0.5


WORDS = ["a", "b", "c", "dd", "e'e", "f,"]
SYMBOLS = [*"▁a ▁b ▁c ▁d d ▁e ' e ▁f , ▁ ▁, a ▁( b )".split()]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([*SYMBOLS, "</s>"]), max_size=25), min_size=1, max_size=5),
    st.lists(st.lists(st.sampled_from(WORDS), min_size=2, max_size=5), min_size=1, max_size=25),
    st.integers(0, 2**40),
)
def test_equals_the_reference(tmp_path_factory, texts, phrases, seed):
    pieces = Pieces(*SYMBOLS)
    lines = [" ".join(phrase) for phrase in phrases]
    planner = make(tmp_path_factory.mktemp("list"), pieces, lines)
    tokens = pieces.rows(*(" ".join(text) for text in texts))
    draws = SequenceDraws(seed, 1, np.arange(len(tokens)))
    starts, maskable = planner.find_units(tokens, draws)
    chance = draws.uniform("pmi-overlap", tokens.shape[1])
    table = reference.read_list(lines)
    longest = max(map(len, table))
    for row in range(len(tokens)):
        expected = reference.starts(tokens[row], maskable[row], pieces.begins, pieces.pieces, table, longest, chance[row])
        assert set(np.flatnonzero(starts[row])) == expected


@pytest.mark.parametrize("rate", [0.01, 0.15, 0.4, 0.95])
def test_whole_budget_never_splits_a_phrase_and_meets_the_rate(tmp_path, city, rate):
    planner = make(tmp_path, city, ["new york city", "we like"])
    text = "▁we ▁like ▁New ▁York ▁Ci ty , ▁h am bur ger s ▁don ' t ▁like ▁New ▁York"
    tokens = np.repeat(city.rows(text), 8000, axis=0)
    plan = draw_plan(planner, tokens)
    chosen = select(torch.from_numpy(plan.depth), torch.from_numpy(plan.count), Rates(rate, rate))[0][:, 0].numpy()
    starts, maskable = planner.find_units(tokens, SequenceDraws(1, 1, np.arange(8000)))
    assert (starts == starts[0]).all()  # nothing overlaps in this text
    for unit in units_of(starts[0], maskable[0]):
        assert (chosen[:, unit] == chosen[:, unit[:1]]).all()
    counts = chosen.sum(axis=1)
    assert abs(counts.mean() - rate * 18) < 4.5 * counts.std() / 8000**0.5


def test_one_replacement_a_unit(tmp_path, city):
    options = dict(random_token_prob=0.3, leave_unmasked_prob=0.3)
    path = tmp_path / "list.txt"
    path.write_text("new york city\n")
    planner = make_planner("pmi", city.vocabulary, options={"pmi_vocab": str(path)}, **options)
    tokens = np.repeat(city.rows("▁we ▁New ▁York ▁Ci ty"), 2000, axis=0)
    replacement = draw_plan(planner, tokens).replacement[:, 2:6]
    masked, same = replacement == city.vocabulary.mask, replacement == tokens[:, 2:6]
    assert (masked.all(axis=1) | ~masked.any(axis=1)).all()
    assert 500 < masked.all(axis=1).sum() < 1100 and 400 < same.all(axis=1).sum() < 800


def test_rows_do_not_depend_on_their_batch(tmp_path, city):
    planner = make(tmp_path, city, ["new york", "york city", "city we", "we like"])
    tokens = city.rows(
        "▁we ▁New ▁York ▁Ci ty ▁we ▁like", "▁New", "▁York ▁Ci ty ▁we ▁like ▁New ▁York ▁Ci ty", "▁like , ▁New ▁York"
    )
    together = draw_plan(planner, tokens)
    for row in range(len(tokens)):
        width = int((tokens[row] != PAD).sum())
        alone = draw_plan(planner, tokens[row : row + 1, :width], ids=np.array([row]))
        assert np.array_equal(alone.depth[0], together.depth[row, :width])


def test_rows_without_words(tmp_path, city):
    planner = make(tmp_path, city, ["new york"])
    for text in ("", "</s>", "▁we", "▁New ▁York"):
        assert draw_plan(planner, city.rows(text)).depth.shape == city.rows(text).shape


def test_hashes_do_not_depend_on_the_cut():
    whole = hash_bytes(b"hamburger")
    parts, before = 0, 0
    for piece in ("ham", "b", "", "urger"):
        parts += hash_bytes(piece.encode()) * pow(0xD1342543DE82EF95, before, 2**64)
        before += len(piece)
    assert parts % 2**64 == whole
    found, counts = hash_phrases(["hamburger"], False)
    assert found[0] == mix_word(np.array([whole], dtype=np.uint64))[0] and counts.tolist() == [1]


def test_hundred_thousand_phrases_do_not_collide():
    words = [f"{a}{b}" for a in "abcdefghij" for b in range(32)]
    phrases = [f"{a} {b}" for a in words for b in words]
    assert len(np.unique(hash_phrases(phrases, False)[0])) == len(phrases)


@given(st.text(st.sampled_from("ab,.(' é中-"), max_size=30))
def test_text_is_cut_like_the_reference(text):
    expected = [part for word in text.split(" ") for part in (reference.cut_word(word) if word else [])]
    assert cut_punctuation(text).split() == expected


def test_missing_options_are_named(tmp_path, city):
    with pytest.raises(UsageError, match="--masker pmi needs --pmi-vocab"):
        make_planner("pmi", city.vocabulary)
    (tmp_path / "list.txt").write_text("word\nother\n")
    with pytest.raises(UsageError, match="list.txt has no phrase of two words or more"):
        make_planner("pmi", city.vocabulary, options={"pmi_vocab": str(tmp_path / "list.txt")})
    with pytest.raises(UsageError, match="--masker pmi with --pmi-unit word .* needs to know where words begin"):
        make_planner("pmi", make_vocabulary(find_word_begins=None), options={"pmi_vocab": str(tmp_path / "list.txt")})
