"""``maskplugins export-hf`` and ``import-hf``: the models. Their tokenizers: ``test_hf_tokenizers.py``."""

import copy
import json

import harness
import pytest
import safetensors.torch
import torch
from tiny_roberta import build, make_dictionary, make_rows
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


def state_of(model):
    return dict(model=copy.deepcopy(model.state_dict()), args=model.args)


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


@pytest.mark.parametrize(
    "arch, options, change, text",
    [
        ("roberta_prenorm", {}, {}, r"no layer norm after its embeddings \(--arch roberta_prenorm\)"),
        ("roberta_base", dict(activation_fn="relu"), {}, "activation_fn must be gelu, got relu"),
        ("roberta_base", dict(activation_fn="tanh"), {}, "activation_fn must be one of gelu, .*, got tanh"),
        ("roberta_base", dict(no_scale_embedding=False), {}, "no_scale_embedding must be on, got False"),
        ("roberta_base", dict(encoder_learned_pos=False), {}, "must hold encoder.*embed_positions.weight"),
        ("roberta_base", {}, {"encoder.strange": torch.zeros(2)}, "holds encoder.strange, for which"),
        ("roberta_base", {}, {"encoder.lm_head.bias": None}, "holds no encoder.lm_head.bias"),
        ("roberta_base", {}, {"encoder.sentence_encoder.layers.1.fc1.weight": None}, "holds no encoder.*layers.1.fc1.weight"),
        ("roberta_base", {}, {"encoder_attention_heads": None}, "does not record encoder_attention_heads"),
        ("roberta_base", {}, {"encoder_attention_heads": 0}, "encoder_attention_heads must divide the width, 16, got 0"),
        ("roberta_base", {}, {"encoder_attention_heads": "2"}, "must divide the width, 16, got '2'"),
        ("roberta_base", {}, {"dropout": 2.0}, r"dropout must be a number in \[0, 1\], got 2.0"),
        ("roberta_base", {}, {"attention_dropout": "none"}, r"attention_dropout must be a number in \[0, 1\], got 'none'"),
    ],
)
def test_what_cannot_be_represented_is_refused_by_name(arch, options, change, text):
    dictionary = make_dictionary()
    state = state_of(build(arch, dictionary, **options))
    for name, value in change.items():
        if name in vars(state["args"]):
            setattr(state["args"], name, value)
        elif value is None:
            del state["model"][name]
        else:
            state["model"][name] = value
    with pytest.raises(UsageError, match=text) as error:
        export_checkpoint(state, dictionary.symbols, None)
    assert "\n" not in str(error.value)


def test_heads_are_chosen_and_refused_by_name():
    dictionary = make_dictionary()
    model = build("roberta_base", dictionary)
    model.register_classification_head("one", num_classes=3)
    model.register_classification_head("two", num_classes=1, inner_dim=5)
    state = state_of(model)
    for arguments, text in (
        ({}, "has several heads, one, two: choose one with --head, or --masked-lm"),
        (dict(head="three"), r"has no head called three \(--head\); found one, two"),
        (dict(head="two"), "inner width of head two must be the model's, 16, got 5"),
        (dict(head="one", labels=["a", "b"]), "--labels must name 3 classes"),
        (dict(head="one", labels=list("abcd"), asked=True), "--labels must name 3 classes, each once, got 4"),
        (dict(masked_lm=True, labels=list("abc"), asked=True), "--labels names the classes of a head, and the masked-LM"),
    ):
        with pytest.raises(UsageError, match=text):
            export_checkpoint(state, dictionary.symbols, None, **arguments)
    config = json.loads(export_checkpoint(state, dictionary.symbols, None, head="one").files["config.json"])
    assert config["id2label"] == {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}
    state["args"].pooler_activation_fn = "relu"
    with pytest.raises(UsageError, match="pooler_activation_fn must be tanh, got relu"):
        export_checkpoint(state, dictionary.symbols, None, head="one")


def test_bad_input_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dictionary = make_dictionary()
    state = state_of(build("roberta_base", dictionary))
    torch.save(state, "model.pt")
    dictionary.save(str(tmp_path / "dict.txt"))
    (tmp_path / "short.txt").write_text("a 1\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text('{"model_type": "bert"}')
    plain = ["--no-tokenizer", "--dict", "dict.txt"]
    files = sorted(tmp_path.iterdir())
    for command, text in (
        (["export-hf", "model.pt", "full", *plain], "full: must not exist or be an empty folder"),
        (["export-hf", "model.pt", "no/out", *plain], "no/out: the folder .* does not exist"),
        (["export-hf", "missing.pt", "out", *plain], "missing.pt: no such checkpoint"),
        (["export-hf", "model.pt", "out", "--no-tokenizer"], "does not name its data: give --dict"),
        (
            ["export-hf", "model.pt", "out", "--no-tokenizer", "--dict", "short.txt"],
            "short.txt: has 6 entries with <mask>, the model has",
        ),
        (["export-hf", "model.pt", "out", "--dict", "dict.txt"], "--bpe must be sentencepiece or gpt2, got None"),
        (["export-hf", "model.pt", "out", *plain[1:], *SP[:2]], "--sentencepiece-model is needed"),
        (["export-hf", "model.pt", "out", *plain[1:], *SP, "no.model"], "no.model: can't read it .*give --sentencepiece-model"),
        (
            ["export-hf", "model.pt", "out", *plain[1:], *SP, "dict.txt"],
            "--sentencepiece-model dict.txt: is no sentencepiece model",
        ),
        (["import-hf", "full", "out"], "config.json: can't read it"),
        (["import-hf", "bert", "out"], "model_type must be one of roberta, .*, got bert"),
    ):
        with pytest.raises(UsageError, match=text) as error:
            main(command)
        assert "\n" not in str(error.value)
    assert sorted(tmp_path.iterdir()) == files


@pytest.mark.parametrize(
    "change, text",
    [
        ({"hidden_size": None}, "hf/config.json: hidden_size must be a whole number above 0, got None"),
        ({"vocab_size": 7}, r"hf/config.json: vocab_size and hidden_size must be those of the word embeddings, got 7"),
        ({"num_attention_heads": 3}, "hf/config.json: num_attention_heads must divide hidden_size, 16, got 3"),
        ({"num_hidden_layers": 4}, "hf/model.safetensors: holds no roberta.encoder.layer.3"),
        ({"hidden_act": "swish"}, "hf/config.json: hidden_act must be gelu or .*, got swish"),
        ({"hidden_dropout_prob": "none"}, "hf/model.safetensors: does not fit config.json: ValueError: .*none"),
        ({"fairseq_maskplugins": {"dictionary_rows": 999}}, "hf/model.safetensors: does not fit config.json: IndexError"),
        ("cut", "hf/model.safetensors: can't read it: "),
        ("nan", "hf: roberta.embeddings.LayerNorm.bias holds NaN or infinite values"),
    ],
)
def test_a_folder_that_does_not_fit_itself(change, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dictionary = make_dictionary()
    files = export_checkpoint(state_of(build("roberta_base", dictionary)), dictionary.symbols, None).files
    if change == "cut":
        files["model.safetensors"] = files["model.safetensors"][:-9]
    elif change == "nan":
        tensors = safetensors.torch.load(files["model.safetensors"])
        tensors["roberta.embeddings.LayerNorm.bias"][3] = float("nan")
        files["model.safetensors"] = safetensors.torch.save(tensors)
    else:
        files["config.json"] = json.dumps({**json.loads(files["config.json"]), **change}).encode()
    write_folder("hf", {**files, "dict.txt": b""})
    with pytest.raises(UsageError, match=text) as error:
        main(["import-hf", "hf", "back"])
    assert "\n" not in str(error.value) and not (tmp_path / "back").exists()


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
