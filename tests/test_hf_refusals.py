"""What ``export-hf`` and ``import-hf`` refuse, each in one line that names it."""

import json

import pytest
import safetensors.torch
import torch
from tiny_roberta import build, make_dictionary, state_of

from fairseq_maskplugins.cli import main
from fairseq_maskplugins.errors import UsageError
from fairseq_maskplugins.files import write_folder
from fairseq_maskplugins.hf.export import export_checkpoint

SP = ("--bpe", "sentencepiece", "--sentencepiece-model")


@pytest.mark.parametrize(
    "arch, options, change, text",
    [
        ("roberta_prenorm", {}, {}, r"no layer norm after its embeddings \(--arch roberta_prenorm\)"),
        ("roberta_base", dict(activation_fn="relu"), {}, "activation_fn must be gelu, got relu"),
        ("roberta_base", dict(no_scale_embedding=False), {}, "no_scale_embedding must be on, got False"),
        ("roberta_base", dict(encoder_learned_pos=False), {}, "must hold encoder.*embed_positions.weight"),
        ("roberta_base", {}, {"encoder.strange": torch.zeros(2)}, "holds encoder.strange, for which"),
        ("roberta_base", {}, {"encoder.lm_head.bias": None}, "holds no encoder.lm_head.bias"),
        ("roberta_base", {}, {"encoder.sentence_encoder.layers.1.fc1.weight": None}, "holds no encoder.*layers.1.fc1.weight"),
        ("roberta_base", {}, {"encoder_attention_heads": None}, "does not record encoder_attention_heads"),
        ("roberta_base", {}, {"encoder_attention_heads": 0}, "encoder_attention_heads must divide the width, 16, got 0"),
        ("roberta_base", {}, {"dropout": 2.0}, r"dropout must be a number in \[0, 1\], got 2.0"),
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
        ("none", "hf/model.safetensors: "),
        ("nan", "hf: roberta.embeddings.LayerNorm.bias holds NaN or infinite values"),
    ],
)
def test_a_folder_that_does_not_fit_itself(change, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dictionary = make_dictionary()
    files = export_checkpoint(state_of(build("roberta_base", dictionary)), dictionary.symbols, None).files
    if change == "cut":
        files["model.safetensors"] = files["model.safetensors"][:-9]
    elif change == "none":
        del files["model.safetensors"]
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
