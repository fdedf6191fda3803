"""``--json``: one object on standard output, nothing else there, and the figures that are printed without it."""

import json

import harness
import numpy as np
import pytest
from fairseq.data import Dictionary
from omegaconf import OmegaConf

from fairseq_maskplugins.cli import main, reporting, to_json
from fairseq_maskplugins.decoupled_mlm.dictionary import build_vocabulary
from fairseq_maskplugins.fill_mask.fill import show_entries
from fairseq_maskplugins.show_masks.measure import Token

SP = ["--bpe", "sentencepiece", "--sentencepiece-model"]


@pytest.fixture
def ask(capsys):
    """Runs a command with ``--json``; returns what its standard output holds."""

    def run(*arguments):
        capsys.readouterr()
        assert main([*map(str, arguments), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_what_json_has_not_is_null(capsys):
    value = {"a": float("nan"), 2: np.float32("inf"), "b": [np.int64(3), np.array([1.5, np.nan])], "c": (None, True)}
    assert json.loads(to_json(value)) == {"a": None, "2": None, "b": [3, [1.5, None]], "c": [None, True]}
    assert json.loads(to_json(Token("x", 1, True)))["text"] == "x"
    with reporting(True) as report:
        print("for people")
        report["n"] = 1
    out, err = capsys.readouterr()
    assert json.loads(out) == {"n": 1} and err == "for people\n"
    with reporting(False) as report:
        print("for people")
        report["n"] = 1
    assert capsys.readouterr().out == "for people\n"


def test_show_masks(corpus, mapnet_checkpoint, ask, capsys):
    options = ["show-masks", corpus / "bin", *SP, corpus / "sp.model", "--masker", "whole_word", "--rows", 2]
    more = ["--measure", 50, "--random-token-prob", 0.2, "--tokens-per-sample", 48]
    found = ask(*options, *more)
    assert (found["rows"], found["masker"], found["tokens_per_sample"]) == (50, "whole_word", 48)
    rate = found["corruption_rate"]
    assert rate["asked"] == 0.4 and abs(rate["selected"] - 0.4) < 0.05 and rate["logged"] <= rate["selected"]
    assert sum(found["shares"].values()) == pytest.approx(1)
    assert found["selected_by_position"][0] is None  # <s>
    assert sum(found["units"]["by_length"]) == found["units"]["count"]
    # the same without --json
    assert main([*map(str, options), *map(str, more)]) == 0
    assert f"selected {rate['selected']:.4f}  logged (without same) {rate['logged']:.4f}" in capsys.readouterr().out
    # rows are as long as the checkpoint's, unless that is asked otherwise
    found = ask(*options, "--measure", 5, "--checkpoint", mapnet_checkpoint)
    assert found["tokens_per_sample"] == 40 and len(found["selected_by_position"]) <= 40
    weights = [word["weight"] for row in found["proposals"] for word in row["words"]]
    assert len(found["proposals"]) == 2 and 0.8 < sum(weights) / len(weights) < 1.2
    found = ask(*options, "--measure", 5, "--checkpoint", mapnet_checkpoint, "--tokens-per-sample", 24)
    assert found["tokens_per_sample"] == 24


def test_pmi_stats(corpus, ask, tmp_path):
    phrases = corpus / "phrases.txt"
    assert ask("pmi", "stats", phrases) == {"list": str(phrases), "phrases": 5, "by_words": {"2": 2, "3": 3}}
    options = ["--text", corpus / "train.txt", "--rates", 0.15, 0.5, "--masker", "uniform", "pmi"]
    found = ask("pmi", "stats", phrases, *options)
    assert found["found"] > 10 and 0 < found["coverage"] < 1 and found["draws"] == 5 * found["found"]
    told = {(one["masker"], one["rate"]): one for one in found["masked_whole"]}
    assert len(told) == 4 and told["pmi", 0.15]["probability"] > told["uniform", 0.15]["probability"]
    one = told["pmi", 0.5]
    assert one["ratio"] == pytest.approx(one["probability"] / found["base_probability"])
    # where nothing of a phrase can be masked by chance there is no ratio
    (tmp_path / "list").write_text("a b\n")
    (tmp_path / "text").write_text("a b\n")
    found = ask("pmi", "stats", tmp_path / "list", "--text", tmp_path / "text", "--rates", 0.15)
    assert found["base_probability"] == 0 and found["masked_whole"][0]["ratio"] is None


def test_fill_mask(corpus, mapnet_checkpoint, ask):
    options = [corpus / "bin", "The old <mask> forgot <mask> .", "A <mask>", *SP, corpus / "sp.model", "--topk", 3]
    found = ask("fill-mask", mapnet_checkpoint, *options)
    assert [len(sentence["masks"]) for sentence in found["sentences"]] == [2, 1]
    for fillings in found["sentences"][0]["masks"]:
        chances = [one["probability"] for one in fillings]
        assert len(chances) == 3 and chances == sorted(chances, reverse=True) and 0 < sum(chances) <= 1
        for one in fillings:  # "token" is the dictionary's entry, "text" what is printed without --json
            assert one["begins_word"] == one["token"].startswith("\u2581")
            assert one["text"] == one["token"].lstrip("\u2581") or not one["begins_word"] or one["token"] == "\u2581"
            assert one["text"] == f"##{one['token']}" or one["begins_word"]


def test_fill_mask_shows_all_that_fills_a_mask(corpus, mapnet_checkpoint, ask, tmp_path, capsys):
    """However many are asked for: no special, no ``<mask>``, no padding word of a dictionary, whose rows a model has."""
    whole = (corpus / "bin" / "dict.txt").read_text().splitlines()
    entries = [line for line in whole if not line.startswith("madeupword")]
    for count in (len(entries), len(entries) - 2):
        lines = [*entries[:count], *(f"madeupword{number:04} 0" for number in range(len(whole) - count))]
        (tmp_path / "dict.txt").write_text("\n".join(lines) + "\n")
        options = [mapnet_checkpoint, tmp_path, "The old <mask>", *SP, corpus / "sp.model", "--topk", 9999]
        ((fillings,),) = [sentence["masks"] for sentence in ask("fill-mask", *options)["sentences"]]
        assert len(fillings) == count and sum(one["probability"] for one in fillings) == pytest.approx(1)
        assert {one["token"] for one in fillings} == {line.split(" ")[0] for line in lines[:count]}
    # without --json: pieces that continue a word bear a mark
    assert main([str(part) for part in ("fill-mask", *options)]) == 0
    shown = capsys.readouterr().out.splitlines()[-1].split(": ", 1)[1].split(", ")
    assert [text.rsplit(" ", 1)[0] for text in shown] == [one["text"] for one in fillings]


def test_what_is_shown_of_entries(tmp_path):
    """GPT-2's pieces are numbers in the dictionary; a tokenizer that does not tell words leaves entries as they are."""
    (tmp_path / "encoder.json").write_text(json.dumps({"\u0120the": 0, "ing": 1, "\u00e9": 2, "\u0120": 3}))
    (tmp_path / "vocab.bpe").write_text("#version\n")
    dictionary = Dictionary()
    for symbol in ("0", "1", "2", "3", "madeupword0000"):
        dictionary.add_symbol(symbol)
    dictionary.add_symbol("<mask>")
    files = {"gpt2_encoder_json": tmp_path / "encoder.json", "gpt2_vocab_bpe": tmp_path / "vocab.bpe"}
    bpe = OmegaConf.create({"_name": "gpt2", **{name: str(path) for name, path in files.items()}})
    shown = show_entries(dictionary.symbols, build_vocabulary(dictionary, False, bpe))
    assert shown[4:8] == [("the", True), ("##ing", False), ("##\\xe9", False), ("3", True)]
    for other in ("characters", None):
        shown = show_entries(["a", "\x1b[31m"], build_vocabulary(dictionary, False, other))
        assert shown == [("a", None), ("\\x1b[31m", None)]


def test_correct_embeddings(mapnet_checkpoint, ask, tmp_path):
    found = ask("correct-embeddings", mapnet_checkpoint, tmp_path / "out.pt", "--random-token-prob", 0.1)
    assert found["rates"] == pytest.approx({"selected": 0.4, "random": 0.1, "same": 0.0, "mask": 0.9})
    assert found["output"] == str(tmp_path / "out.pt") and found["output_projection"].startswith("tied, corrected")
    assert 0 < found["rows"] < found["rows_of"] == found["mask_index"] + 1
    assert found["mean_norm_after"] < found["mean_norm_before"]


def test_fisher(data_bin, mapnet_checkpoint, ask, tmp_path):
    values, mask = tmp_path / "values", tmp_path / "mask"
    options = ["--restore-file", mapnet_checkpoint, *harness.TINY, *harness.MLM, *harness.MAPNET]
    found = ask("fisher", data_bin, "--fisher", values, "--mask", mask, "--max-examples", 8, "--loop", *options)
    assert (found["examples"], found["criterion"], found["mask"]) == (8, "mapnet", str(mask))
    assert 0 < found["kept"] < found["covered"] and found["reserve_p"] == 0.3
    table = ask("fisher", "show", "--mask", mask)
    assert (table["kept"], table["covered"]) == (found["kept"], found["covered"])
    assert sum(part["kept"] for part in table["parts"]) == table["kept"] and "layer 1" in str(table["parts"])
    again = ask("fisher", "select", "--fisher", values, "--reserve-p", 0.5, "--mask", tmp_path / "half")
    assert again["covered"] == found["covered"] and again["kept"] == pytest.approx(again["covered"] / 2, abs=1)


def test_variance(data_bin, mapnet_checkpoint, ask, tmp_path, capsys):
    options = ["variance", mapnet_checkpoint, data_bin, *"--rows 4 --groups 2 --masks 2 --rates 0.4 --cpu".split()]
    found = ask(*options)
    (line,) = found["lines"]
    assert (found["rows"], found["masks"], line["masker"], line["corruption"]) == (4, 2, "uniform", 0.4)
    assert set(line["found"]) == {"data", "mask", "total", "loss"} and line["found"]["loss"]["value"] > 0
    # with a name the table is printed, and the same object goes to the file
    assert main([*map(str, options), "--json", str(tmp_path / "found.json")]) == 0
    out = capsys.readouterr().out
    assert "| uniform |" in out and f"wrote {tmp_path / 'found.json'}" in out
    assert json.loads((tmp_path / "found.json").read_text()) == found
