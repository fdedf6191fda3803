"""Phrases in text without spaces: a list of characters or pieces, built and masked, from text to mask."""

import types

import numpy as np
import pytest
import sentencepiece
from fairseq.data import Dictionary
from helpers import draw_plan, make_planner
from reference.plan_reference import units_of

from fairseq_maskplugins.cli import main
from fairseq_maskplugins.decoupled_mlm.dictionary import build_vocabulary
from fairseq_maskplugins.errors import UsageError
from fairseq_maskplugins.pieces import read_piece
from fairseq_maskplugins.pmi_build import build_list, write_list
from fairseq_maskplugins.pmi_build.words import WordSplitter
from fairseq_maskplugins.rng import SequenceDraws

NAME = "北京大学"
OTHERS = "我你他看去来说听写走"


@pytest.fixture(scope="module")
def text():
    """Sentences in which the name stands between characters of any order."""
    rng = np.random.default_rng(3)
    draw = lambda: "".join(rng.choice(list(OTHERS), 4))  # noqa: E731
    return [f"{draw()}{NAME}{draw()}，{draw()}。" for _ in range(200)]


@pytest.fixture(scope="module")
def characters(text, tmp_path_factory):
    """A list of characters, from a file with a byte-order mark and Windows' ends of lines."""
    folder = tmp_path_factory.mktemp("list")
    (folder / "text").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(text).encode("utf-8"))
    built = build_list([str(folder / "text")], WordSplitter("character"), size=4, temp_dir=str(folder))
    write_list(str(folder / "list.txt"), built.phrases)
    return folder / "list.txt"


def dictionary_of(symbols):
    dictionary = Dictionary()
    for symbol in symbols:
        dictionary.add_symbol(symbol)
    dictionary.add_symbol("<mask>")
    return dictionary


def units(planner, dictionary, symbols):
    tokens = np.array([[dictionary.bos(), *map(dictionary.index, symbols), dictionary.eos()]])
    starts, maskable = planner.find_units(tokens, SequenceDraws(1, 1, np.arange(1)))
    return ["".join(dictionary[tokens[0, place]] for place in unit) for unit in units_of(starts[0], maskable[0])]


def test_a_list_of_characters_masks_characters(characters):
    assert NAME in characters.read_text(encoding="utf-8").replace(" ", "")
    dictionary = dictionary_of([*OTHERS, *NAME, "，"])
    vocabulary = build_vocabulary(dictionary, False, None)
    planner = make_planner("pmi", vocabulary, options={"pmi_vocab": str(characters), "pmi_unit": "token"})
    assert units(planner, dictionary, "我去北京大学看，北京") == ["我", "去", NAME, "看", "，", "北京"]
    tokens = np.array([[dictionary.bos(), *map(dictionary.index, f"我{NAME}看你")]] * 50)
    plan = draw_plan(planner, tokens)
    taken = plan.depth[:, 2:6] <= 0.5 * plan.count[:, None]
    assert (taken.all(axis=1) == taken.any(axis=1)).all() and 0 < taken.all(axis=1).sum() < 50


def test_a_list_of_pieces_masks_pieces(text, tmp_path):
    """Pieces are cut with the model that the data is encoded with; the mark that begins a sentence is no piece."""
    (tmp_path / "text").write_text("\n".join(text), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.Train(
        input=str(tmp_path / "text"), model_prefix=str(tmp_path / "sp"), vocab_size=20, minloglevel=2
    )
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "sp.model"))
    splitter = WordSplitter("sentencepiece", model=str(tmp_path / "sp.model"))
    write_list(str(tmp_path / "list"), build_list([str(tmp_path / "text")], splitter, size=8, temp_dir=str(tmp_path)).phrases)
    dictionary = dictionary_of([model.id_to_piece(i) for i in range(3, len(model))])
    bpe = {"_name": "sentencepiece", "sentencepiece_model": str(tmp_path / "sp.model")}
    from omegaconf import OmegaConf

    vocabulary = build_vocabulary(dictionary, False, OmegaConf.create(bpe))
    pieces = model.encode(f"我去{NAME}看", out_type=str)
    options = {"pmi_vocab": str(tmp_path / "list")}
    found = units(make_planner("pmi", vocabulary, options={**options, "pmi_unit": "token"}), dictionary, pieces)
    assert "".join(found) == "".join(pieces) and NAME in "".join(found)
    assert any(NAME in unit for unit in found) and len(found) >= 3
    # to the tokenizer the sentence is a word: nothing is found there
    assert units(make_planner("pmi", vocabulary, options=options), dictionary, pieces) == ["".join(pieces)]


def test_stats_look_at_the_same_units(characters, text, tmp_path, capsys):
    """``pmi stats`` on data of characters: the name is in every sentence, and counted."""
    import harness

    lines = [" ".join(line) for line in text]
    for name, part in (("train", lines), ("valid", lines[:20])):
        (tmp_path / name).write_text("\n".join(part) + "\n", encoding="utf-8")
    harness.preprocess(tmp_path / "train", tmp_path / "valid", tmp_path / "bin")
    command = ["pmi", "stats", str(characters), str(tmp_path / "bin"), "--masker", "pmi", "--pmi-unit", "token"]
    main([*command, "--rows", "0", "--epochs", "1", "--sample-break-mode", "complete"])
    assert "200 phrases" in capsys.readouterr().out
    # and on the text itself
    (tmp_path / "text").write_text("\n".join(text) + "\n", encoding="utf-8")
    command = ["pmi", "stats", str(characters), "--text", str(tmp_path / "text"), "--words", "character"]
    main([*command, "--rows", "0", "--epochs", "1"])
    assert "200 phrases" in capsys.readouterr().out
    with pytest.raises(UsageError, match="--pmi-unit must be word or token, got 'line'"):
        main([*command, "--pmi-unit", "line"])
    with pytest.raises(UsageError, match="--words sentencepiece and --sentencepiece-model FILE go together"):
        main([*command[:-1], "sentencepiece"])


def test_an_unknown_unit_is_named(characters):
    vocabulary = build_vocabulary(dictionary_of("我你"), False, None)
    with pytest.raises(UsageError, match="--pmi-unit must be word or token, got 'line'"):
        make_planner("pmi", vocabulary, options={"pmi_vocab": str(characters), "pmi_unit": "line"})
    with pytest.raises(UsageError, match="--masker pmi with --pmi-unit word .* needs to know where words begin"):
        make_planner("pmi", vocabulary, options={"pmi_vocab": str(characters)})


def test_pieces_of_other_tokenizers():
    assert read_piece("bert", None, "##ing") == b"ing" and read_piece("bert", None, "京") == "京".encode()
    backend = types.SimpleNamespace(id_to_token={7: "\u0120caf\u00c3\u00a9"}.get)
    assert read_piece("hf_byte_bpe", types.SimpleNamespace(bpe=backend), "7") == "café".encode()


def test_control_characters_and_ends_of_lines_are_boundaries(tmp_path):
    """No list may hold them: the masker refuses one that does."""
    text = "new\x01york new\x7fyork\u2028old\x85town\rold town " * 20
    (tmp_path / "text").write_bytes(text.encode("utf-8"))
    built = build_list([str(tmp_path / "text")], temp_dir=str(tmp_path))
    # "york new" stands on one line, and so does what repetition joins: "old town new"
    assert {phrase.text for phrase in built.phrases} == {"york new", "old town", "town new", "old town new"}
