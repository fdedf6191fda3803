"""``maskplugins export-hf`` and ``import-hf``: the models. Their tokenizers: ``test_hf_tokenizers.py``."""

import copy

import harness
import pytest
import torch
from tiny_roberta import build, make_dictionary, make_rows, state_of
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, pipeline

from fairseq_maskplugins.checkpoints import read_checkpoint
from fairseq_maskplugins.cli import main
from fairseq_maskplugins.errors import UsageError
from fairseq_maskplugins.files import write_folder
from fairseq_maskplugins.hf.export import export_checkpoint
from fairseq_maskplugins.hf.folder import read_folder
from fairseq_maskplugins.hf.importing import import_model, plan_dictionary
from fairseq_maskplugins.hf.tokenizer import Built

SP = ("--bpe", "sentencepiece", "--sentencepiece-model")


def load(cls, folder):
    """The model, of which every tensor was in the folder, and the other way round."""
    model, info = cls.from_pretrained(str(folder), output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    return model.eval()


def assert_same_logits(ours, theirs, rows, pad=1):
    """Within 1e-4 at all tokens but padding. *Shape:* rows ``[B, T]``."""
    with torch.no_grad():
        expected = ours.eval()(rows)[0]
        found = theirs(input_ids=rows, attention_mask=(rows != pad).long()).logits
    seen = rows != pad
    assert (expected[seen] - found[seen][:, : expected.size(-1)]).abs().max() < 1e-4
    return found


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("prenorm", [False, True], ids=["postnorm", "prenorm"])
@pytest.mark.parametrize("arch", ["roberta_base", "droptoken_roberta_base", "mae_roberta_base"])
def test_logits_agree_and_the_way_back_is_bit_equal(arch, prenorm, tied, tmp_path):
    dictionary = make_dictionary()
    model = build(arch, dictionary, encoder_normalize_before=prenorm, untie_weights_roberta=not tied)
    state = state_of(model)
    state["model"]["mae_decoder.mask"] = torch.zeros(3)  # as a checkpoint of --arch mae_roberta holds
    done = export_checkpoint(state, dictionary.symbols, None)
    write_folder(str(tmp_path / "hf"), done.files)
    theirs = load(AutoModelForMaskedLM, tmp_path / "hf")
    assert type(theirs).__name__ == ("RobertaPreLayerNormForMaskedLM" if prenorm else "RobertaForMaskedLM")
    assert theirs.config.tie_word_embeddings == tied and theirs.config.vocab_size == len(dictionary)
    assert_same_logits(model, theirs, make_rows(dictionary, (9, 5, 38)))

    config, tensors = read_folder(str(tmp_path / "hf"))
    (tmp_path / "model.pt").write_bytes(import_model(config, tensors, None, None).checkpoint)
    back = read_checkpoint(str(tmp_path / "model.pt"))
    before = {n: t for n, t in harness.trained(state["model"]).items() if not n.startswith("mae_decoder")}
    assert back["model"].keys() == before.keys()
    assert all(torch.equal(back["model"][name], before[name]) for name in before)
    assert back["args"].untie_weights_roberta != tied and back["args"].max_positions == 40


def test_names_of_2019(tmp_path):
    """Published RoBERTas: decoder for encoder, emb_layer_norm, and q, k and v in one tensor."""
    dictionary = make_dictionary()
    model = build("roberta_base", dictionary)
    old = harness.trained(copy.deepcopy(model.state_dict()))
    for layer in range(3):
        for kind in ("weight", "bias"):
            at = f"encoder.sentence_encoder.layers.{layer}.self_attn."
            old[f"{at}in_proj_{kind}"] = torch.cat([old.pop(f"{at}{part}_proj.{kind}") for part in "qkv"])
    old = {n.replace("layernorm_embedding", "emb_layer_norm").replace("encoder.", "decoder.", 1): t for n, t in old.items()}
    write_folder(str(tmp_path / "hf"), export_checkpoint(dict(model=old, args=model.args), dictionary.symbols, None).files)
    assert_same_logits(model, load(AutoModelForMaskedLM, tmp_path / "hf"), make_rows(dictionary, (9, 5)))


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_rows_for_further_pieces_are_unk_and_never_predicted(tied, tmp_path):
    dictionary = make_dictionary()
    model = build("roberta_base", dictionary, untie_weights_roberta=not tied)
    done = export_checkpoint(state_of(model), dictionary.symbols, Built({}, ["x", "y"], []))
    write_folder(str(tmp_path / "hf"), done.files)
    rows = make_rows(dictionary, (9, 5))
    theirs = load(AutoModelForMaskedLM, tmp_path / "hf")
    found = assert_same_logits(model, theirs, rows)
    assert found.size(-1) == len(dictionary) + 2 and found[..., -2:].softmax(-1).isfinite().all()
    assert found.softmax(-1)[..., -2:].max() == 0
    rows[0, 3], other = 3, rows.clone()
    rows[0, 3] = 3
    other[0, 3] = len(dictionary) + 1
    with torch.no_grad():
        assert torch.equal(theirs(input_ids=rows).logits, theirs(input_ids=other).logits)


def test_a_mapnet_checkpoint_is_exported_without_its_proposer(corpus, tmp_path):
    mapnet = "--criterion mapnet --mapnet-embed-dim 16 --mapnet-layers 0 --max-update 1".split()
    harness.train(corpus / "bin", tmp_path / "run", *mapnet, *SP, corpus / "sp.model")
    checkpoint = tmp_path / "run" / "checkpoint_last.pt"
    state = read_checkpoint(str(checkpoint))
    assert any(name.startswith("proposer.") for name in state["criterion"])
    assert main(["export-hf", str(checkpoint), str(tmp_path / "hf")]) == 0
    theirs = load(AutoModelForMaskedLM, tmp_path / "hf")
    embedding = state["model"]["encoder.sentence_encoder.embed_tokens.weight"]
    assert torch.equal(theirs.roberta.embeddings.word_embeddings.weight[: len(embedding)], embedding)
    assert "proposer" not in str(theirs.state_dict().keys())


def test_command_with_a_trained_model_and_fine_tuning_from_the_way_back(corpus, tmp_path, capsys):
    harness.train(corpus / "bin", tmp_path / "run", "--max-update", 2, *SP, corpus / "sp.model")
    checkpoint = tmp_path / "run" / "checkpoint_last.pt"
    (tmp_path / "hf").mkdir()  # an empty folder is taken
    assert main(["export-hf", str(checkpoint), str(tmp_path / "hf")]) == 0
    assert "RobertaForMaskedLM: 2 layers of width 32" in capsys.readouterr().out
    fill = pipeline("fill-mask", model=str(tmp_path / "hf"), tokenizer=str(tmp_path / "hf"))
    best = fill("The old captain <mask> the harbour.", top_k=3)
    assert len(best) == 3 and all(0 < answer["score"] < 1 for answer in best)
    assert fill.tokenizer.model_max_length == 64

    assert main(["import-hf", str(tmp_path / "hf"), str(tmp_path / "back")]) == 0
    assert (tmp_path / "back" / "dict.txt").read_bytes() == (corpus / "bin" / "dict.txt").read_bytes()
    assert (tmp_path / "back" / "sp.model").read_bytes() == (corpus / "sp.model").read_bytes()
    harness.assert_same_weights(checkpoint, tmp_path / "back" / "model.pt")
    options = ["--max-update", 1, "--lr", 0, "--finetune-from-model", tmp_path / "back" / "model.pt"]
    harness.train(corpus / "bin", tmp_path / "tuned", *options)
    harness.assert_same_weights(checkpoint, tmp_path / "tuned" / "checkpoint_last.pt")


def test_classification_head_with_labels(corpus, tmp_path):
    options = ["--max-update", 2, "--classification-head-name", "who", "--encoder-normalize-before"]
    base = harness.TINY + harness.LABELLED
    harness.train(corpus / "bin", tmp_path / "run", *options, base=base)
    checkpoint = tmp_path / "run" / "checkpoint_last.pt"
    assert main(["export-hf", str(checkpoint), str(tmp_path / "hf"), *SP, str(corpus / "sp.model")]) == 0
    theirs = load(AutoModelForSequenceClassification, tmp_path / "hf")
    assert type(theirs).__name__ == "RobertaPreLayerNormForSequenceClassification"
    assert theirs.config.id2label == {0: "yes", 1: "no"}
    from fairseq import checkpoint_utils

    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], {"data": str(corpus / "bin")})
    rows = make_rows(task.source_dictionary, (9, 5, 12))
    with torch.no_grad():
        expected = models[0].eval()(rows, features_only=True, classification_head_name="who")[0]
        found = theirs(input_ids=rows, attention_mask=(rows != 1).long()).logits
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)

    assert main(["import-hf", str(tmp_path / "hf"), str(tmp_path / "back")]) == 0
    back, before = harness.load_weights(tmp_path / "back" / "model.pt"), harness.load_weights(checkpoint)
    assert back.keys() == before.keys()
    assert all(torch.equal(back[name], before[name]) for name in before if "lm_head" not in name)
    tune = [*options, "--finetune-from-model", tmp_path / "back" / "model.pt"]
    harness.train(corpus / "bin", tmp_path / "tuned", *tune, base=base)
    assert main(["export-hf", str(checkpoint), str(tmp_path / "mlm"), "--masked-lm", "--no-tokenizer"]) == 0
    load(AutoModelForMaskedLM, tmp_path / "mlm")


def test_dictionary_of_a_foreign_tokenizer():
    vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "the": 5, "##s": 6, "beyond": 8}
    specials = {"<s>": "[CLS]", "<pad>": "[PAD]", "</s>": "[SEP]", "<unk>": "[UNK]", "<mask>": "[MASK]"}
    symbols, order = plan_dictionary(vocab, 8, specials)
    assert symbols == ["<s>", "<pad>", "</s>", "<unk>", "the", "##s", "madeupword0007", "<mask>"]
    assert order == [2, 0, 3, 1, 5, 6, 7, 4]
    for change, text in (({"<mask>": None}, "must have a token for <mask>"), ({"<mask>": "[UNK]"}, "five different ones")):
        with pytest.raises(UsageError, match=text):
            plan_dictionary(vocab, 8, {**specials, **change})


def test_what_was_corrected_is_known_on_the_way_back(tmp_path, monkeypatch):
    """A second correction would not be right, whatever form the model had in between."""
    monkeypatch.chdir(tmp_path)
    dictionary = make_dictionary()
    torch.save(state_of(build("roberta_base", dictionary)), "model.pt")
    dictionary.save(str(tmp_path / "dict.txt"))
    plain = ["--no-tokenizer", "--dict", "dict.txt"]
    rates = ["--mask-prob", "0.4", "--random-token-prob", "0", "--leave-unmasked-prob", "0"]
    assert main(["correct-embeddings", "model.pt", "once.pt", "--dict", "dict.txt", *rates]) == 0
    assert main(["export-hf", "once.pt", "hf", *plain]) == 0
    with pytest.raises(UsageError, match="--head new names a classification head, and this model has none"):
        main(["import-hf", "hf", "back", "--head", "new"])
    assert main(["import-hf", "hf", "back"]) == 0
    once, back = (read_checkpoint(path)["correct_embeddings"] for path in ("once.pt", "back/model.pt"))
    assert once == back and once["selected"] == 0.4
    with pytest.raises(UsageError, match="back/model.pt: its embeddings are corrected already"):
        main(["correct-embeddings", "back/model.pt", "twice.pt", "--dict", "back/dict.txt", *rates])
