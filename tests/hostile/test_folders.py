"""Mask files, folders of ``transformers`` and files of tokenizers."""

import json
import os
import shutil

import files
import harness
import numpy as np
import pytest
import torch
import transformers.models.roberta.tokenization_roberta_fast  # noqa: F401  (once, for all forks)
from guarded import check_line, command, guarded
from safetensors.numpy import save
from safetensors.torch import save as save_torch

import fairseq_maskplugins  # noqa: F401  (registers)
from fairseq_maskplugins.child_tuning import maskfile

PARAMETERS = [
    {"name": "encoder.layers.0.fc1.weight", "shape": [3, 4], "covered": True},
    {"name": "encoder.layers.0.fc1.bias", "shape": [4], "covered": False, "no_gradient": True},
]


def mask_file(manifest=None, tensors=None, kind="mask", raw=None, **metadata):
    tensors = {PARAMETERS[0]["name"]: np.eye(3, 4) > 0} if tensors is None else tensors
    manifest = {"parameters": PARAMETERS, "reserve_p": 0.25} if manifest is None else manifest
    text = json.dumps(manifest) if raw is None else raw
    return save(tensors, {"maskplugins": kind, "version": "1", "manifest": text, **metadata})


def listed(**change):
    return {"parameters": [{**PARAMETERS[0], **change}, PARAMETERS[1]], "reserve_p": 0.25}


def header(size, text=b""):
    return size.to_bytes(8, "little") + text


TENSOR = {PARAMETERS[0]["name"]: np.eye(3, 4) > 0}
MASKS = {
    "empty": lambda: b"",
    "a header of 2^60 bytes": lambda: header(1 << 60, b"{}"),
    "a header of 99 MB that is not there": lambda: header(99_000_000, b"{}"),
    "a nested header": lambda: header(200_000, b"[" * 200_000),
    "a tensor of 10^12 entries": lambda: header(
        90, b'{"a":{"dtype":"F32","shape":[1000000,1000000],"data_offsets":[0,4000000000000]}}'.ljust(90)
    ),
    "a pickle": lambda: files.pickled({"parameters": []}),
    "no metadata": lambda: save(TENSOR),
    "another kind": lambda: mask_file(kind="fisher"),
    "an unknown kind": lambda: mask_file(kind="x"),
    "version 10^4999": lambda: mask_file(version="1" + "0" * 4999),
    "version \u00b2": lambda: mask_file(version="\u00b2"),
    "no JSON": lambda: mask_file(raw="{"),
    "nested JSON": lambda: mask_file(raw="[" * 100_000),
    "another JSON": lambda: mask_file([1, 2]),
    "no parameters": lambda: mask_file({}),
    "parameters of another kind": lambda: mask_file({"parameters": {"a": 1}, "reserve_p": 0.3}),
    "a parameter of another kind": lambda: mask_file({"parameters": [1], "reserve_p": 0.3}),
    "no name": lambda: mask_file({"parameters": [{"shape": [1]}], "reserve_p": 0.3}),
    "a name that is a list": lambda: mask_file(listed(name=["x"])),
    "no shape": lambda: mask_file(listed(shape=None)),
    "a shape of texts": lambda: mask_file(listed(shape=["3", "4"])),
    "a negative shape": lambda: mask_file(listed(shape=[-3, -4])),
    "another shape": lambda: mask_file(listed(shape=[4, 3])),
    "a huge shape": lambda: mask_file(listed(shape=[10**30])),
    "covered that is a text": lambda: mask_file(listed(covered="yes")),
    "not covered, with a tensor": lambda: mask_file(listed(covered=False)),
    "a parameter twice": lambda: mask_file({"parameters": [PARAMETERS[0]] * 2, "reserve_p": 0.3}),
    "a tensor that is not listed": lambda: mask_file({"parameters": PARAMETERS[1:], "reserve_p": 0.3}),
    "no reserve_p": lambda: mask_file({"parameters": PARAMETERS}),
    "reserve_p 0": lambda: mask_file({"parameters": PARAMETERS, "reserve_p": 0}),
    "reserve_p NaN": lambda: mask_file({"parameters": PARAMETERS, "reserve_p": float("nan")}),
    "reserve_p of another kind": lambda: mask_file({"parameters": PARAMETERS, "reserve_p": [1]}),
    "numbers in place of booleans": lambda: mask_file(tensors={PARAMETERS[0]["name"]: np.ones((3, 4), np.float32)}),
    "bfloat16": lambda: save_torch(
        {PARAMETERS[0]["name"]: torch.ones(3, 4, dtype=torch.bfloat16)},
        {"maskplugins": "mask", "version": "1", "manifest": json.dumps({"parameters": PARAMETERS, "reserve_p": 0.3})},
    ),
}


def mask_readers(path, out, data, tmp_path):
    yield ["fisher", "show", "--mask", path, "--png", tmp_path / "mask.png"]
    yield ["fisher", "select", "--fisher", path, "--mask", out, "--reserve-p", 0.3]


@pytest.mark.parametrize("name", MASKS)
def test_mask_files(name, tmp_path):
    path = tmp_path / "mask"
    path.write_bytes(MASKS[name]())
    for arguments in mask_readers(path, tmp_path / "out", None, tmp_path):
        outcome = guarded(command, *arguments)
        if name == "another kind" and arguments[1] == "select":  # as it should be, but for the type of its numbers
            check_line(outcome, path, "must be of type float32")
        else:
            check_line(outcome, path)
        assert outcome.megabytes < 200, outcome
    assert os.listdir(tmp_path) == ["mask"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_fisher_values_that_are_none(value, tmp_path):
    values = {PARAMETERS[0]["name"]: np.full((3, 4), value, np.float32)}
    (tmp_path / "fisher").write_bytes(mask_file(tensors=values, kind="fisher"))
    arguments = ["fisher", "select", "--fisher", tmp_path / "fisher", "--mask", tmp_path / "out", "--reserve-p", 0.3]
    check_line(guarded(command, *arguments), "must be finite and 0 or more")


def test_mutations_of_mask_files(tmp_path):
    good = mask_file()
    (tmp_path / "mask").write_bytes(good)
    assert guarded(maskfile.read, str(tmp_path / "mask"), "mask").kind == "done"
    for content in files.mutations(good, 60):
        (tmp_path / "mask").write_bytes(content)
        outcome = guarded(command, "fisher", "show", "--mask", tmp_path / "mask")
        assert outcome.kind in ("done", "refused"), outcome
        if outcome.kind == "refused":
            check_line(outcome, tmp_path / "mask")


def test_a_mask_in_training(data_bin, tmp_path):
    """``--child-tuning-mask``: one line before the first update."""
    for name in ("nested JSON", "reserve_p 0", "another shape"):
        (tmp_path / "mask").write_bytes(MASKS[name]())
        options = [
            "--optimizer",
            "child_tuning_adam",
            "--child-tuning-mode",
            "D",
            "--child-tuning-mask",
            tmp_path / "mask",
        ]
        log = harness.train(data_bin, tmp_path / "run", *options, "--max-update", 1, check=False)
        assert log.returncode == 1
        assert log.text.strip().splitlines()[-1].startswith(f"fairseq_maskplugins: {tmp_path / 'mask'}: ")


@pytest.fixture(scope="module")
def exported(corpus, tmp_path_factory):
    """A folder that ``export-hf`` wrote, with its sentencepiece tokenizer."""
    folder = tmp_path_factory.mktemp("exported")
    words = ["--bpe", "sentencepiece", "--sentencepiece-model", corpus / "sp.model"]
    harness.train(corpus / "bin", folder, "--max-update", 1, *words)
    outcome = guarded(command, "export-hf", folder / "checkpoint_last.pt", folder / "hf")
    assert outcome.kind == "done", outcome
    return folder


def config(**change):
    def edit(folder):
        path = folder / "config.json"
        found = {**json.loads(path.read_text()), **change}
        path.write_text(json.dumps({key: value for key, value in found.items() if value is not ...}))

    return edit


def tensors(change):
    def edit(folder):
        from safetensors.torch import load_file

        found = load_file(folder / "model.safetensors")
        change(found)
        (folder / "model.safetensors").write_bytes(save_torch(found))

    return edit


def content(name, data):
    return lambda folder: (folder / name).write_bytes(data)


def index(files_by_name):
    return lambda folder: (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": files_by_name})
    )


WORDS, TYPES = "roberta.embeddings.word_embeddings.weight", "roberta.embeddings.token_type_embeddings.weight"
OURS = "fairseq_maskplugins"
FOLDERS = {
    "no config": lambda folder: (folder / "config.json").unlink(),
    "a config that is cut off": content("config.json", b'{"model_type": "rob'),
    "a config of 100,000 levels": content("config.json", b"[" * 100_000),
    "a config that is a list": content("config.json", b"[1]"),
    "a config that is not UTF-8": content("config.json", b'{"a": "\xff"}'),
    "another model": config(model_type="bert"),
    "a model type that is a list": config(model_type=["roberta"]),
    "10^9 layers": config(num_hidden_layers=10**9),
    "layers in a text": config(num_hidden_layers="2"),
    "no layers": config(num_hidden_layers=...),
    "10^12 entries": config(vocab_size=10**12),
    "a smaller vocabulary": config(vocab_size=5),
    "entries NaN": config(vocab_size=float("nan")),
    "a wider model": config(hidden_size=64),
    "other heads": config(num_attention_heads=7),
    "no heads": config(num_attention_heads=0),
    "a wider inner layer": config(intermediate_size=10**9),
    "dropout in a text": config(hidden_dropout_prob="high"),
    "another activation": config(hidden_act=["gelu"]),
    "rows 10^12": config(**{OURS: {"dictionary_rows": 10**12, "head": None}}),
    "rows of another kind": config(**{OURS: [1, 2]}),
    "a head of another kind": config(**{OURS: {"dictionary_rows": 80, "head": {"a": 1}}}),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "weights that are a pickle": content("model.safetensors", files.pickled({})),
    "weights with a huge header": content("model.safetensors", header(1 << 60)),
    "weights that are cut off": lambda folder: (folder / "model.safetensors").write_bytes(
        (folder / "model.safetensors").read_bytes()[:-100]
    ),
    "NaN weights": tensors(lambda found: found[WORDS].fill_(float("nan"))),
    "whole numbers": tensors(lambda found: found.update({WORDS: found[WORDS].int()})),
    "a wrong shape": tensors(lambda found: found.update({WORDS: torch.zeros(3, 5)})),
    "a wrong shape inside": tensors(
        lambda found: found.update({"roberta.encoder.layer.0.attention.self.query.weight": torch.zeros(3, 5)})
    ),
    "types of another width": tensors(lambda found: found.update({TYPES: torch.ones(1, 3)})),
    "no positions": tensors(
        lambda found: found.update({"roberta.embeddings.position_embeddings.weight": torch.ones(1, 32)})
    ),
    "a tensor too much": tensors(lambda found: found.update({"\x1b[31mred": torch.ones(1)})),
    "parts elsewhere": index({"a": "../../outside.safetensors"}),
    "parts at an absolute path": index({"a": "/etc/passwd"}),
    "parts of another kind": index({"a": 1}),
    "no parts": index({}),
}


def import_edited(edit, exported, tmp_path, *options):
    folder = tmp_path / "hf"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(exported / "hf", folder)
    edit(folder)
    before = sorted(os.listdir(tmp_path))
    outcome = guarded(command, "import-hf", folder, tmp_path / "imported", *options, megabytes=900)
    assert outcome.megabytes < 350, outcome
    if outcome.kind != "done":
        assert sorted(os.listdir(tmp_path)) == before
    return outcome


@pytest.mark.parametrize("name", FOLDERS)
def test_folders(name, exported, tmp_path):
    check_line(import_edited(FOLDERS[name], exported, tmp_path), tmp_path / "hf")


def test_the_exported_folder_is_read(exported, tmp_path):
    assert import_edited(lambda folder: None, exported, tmp_path).kind == "done"


def no_dictionary(folder):
    (folder / "dict.txt").unlink()


def tokenizer(change, name="tokenizer_config.json"):
    def edit(folder):
        no_dictionary(folder)
        path = folder / name
        found = json.loads(path.read_text())
        change(found)
        path.write_text(json.dumps(found))

    return edit


REMOTE = {"AutoTokenizer": ["evil.Tokenizer", "evil.Tokenizer"]}


def with_code(folder):
    tokenizer(lambda found: found.update(auto_map=REMOTE, tokenizer_class="Evil"))(folder)
    (folder / "evil.py").write_text(f"import os\nos.mkdir({str(folder.parent / 'mark')!r})\nclass Tokenizer: pass\n")


TOKENIZERS = {
    "code beside it": with_code,
    "another class": tokenizer(lambda found: found.update(tokenizer_class="TransfoXLTokenizer")),
    "no such class": tokenizer(lambda found: found.update(tokenizer_class="os.system")),
    "a class of another kind": tokenizer(lambda found: found.update(tokenizer_class=[1])),
    "no mask": tokenizer(lambda found: found.update(mask_token=None)),
    "one token for two": tokenizer(lambda found: found.update(pad_token="<unk>")),
    "no model": tokenizer(lambda found: found.pop("model"), "tokenizer.json"),
    "a vocabulary of another kind": tokenizer(lambda found: found["model"].update(vocab=3), "tokenizer.json"),
    "an empty vocabulary": tokenizer(lambda found: found["model"].update(vocab=[]), "tokenizer.json"),
    "nested": lambda folder: (no_dictionary(folder), (folder / "tokenizer.json").write_bytes(b"[" * 100_000)),
    "a charsmap of rubbish": tokenizer(
        lambda found: found.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}), "tokenizer.json"
    ),
    "not UTF-8": lambda folder: (no_dictionary(folder), (folder / "tokenizer.json").write_bytes(b"\xff" * 100)),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_tokenizers_of_folders(name, exported, tmp_path):
    outcome = import_edited(TOKENIZERS[name], exported, tmp_path)
    assert not (tmp_path / "mark").exists()
    if outcome.kind != "done":
        check_line(outcome)
    else:  # the same is told by another file of the folder
        assert name in ("no mask", "one token for two", "another class"), outcome


@pytest.mark.parametrize("count", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_mutations_of_folders(count, exported, tmp_path):
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        for data in files.mutations((exported / "hf" / file).read_bytes(), count, seed=count):
            shutil.rmtree(tmp_path / "imported", ignore_errors=True)

            def edit(folder, file=file, data=data):
                if file == "tokenizer.json":
                    no_dictionary(folder)
                (folder / file).write_bytes(data)

            outcome = import_edited(edit, exported, tmp_path)
            assert outcome.kind in ("done", "refused"), (file, outcome)


GPT2 = {
    "empty": (b"", b""),
    "nested": (b"[" * 100_000, b"#version\n"),
    "a list": (b"[1, 2]", b"#version\n"),
    "numbers that are texts": (b'{"a": "b"}', b"#version\n"),
    "infinite numbers": (b'{"a": Infinity}', b"#version\n"),
    "not UTF-8": (b"{}", b"\xff\xfe"),
    "a pickle": (files.pickled({}), b""),
}


@pytest.mark.parametrize("name", GPT2)
def test_files_of_gpt2(name, exported, corpus, tmp_path):
    for file, data in zip(("encoder.json", "vocab.bpe"), GPT2[name]):
        (tmp_path / file).write_bytes(data)
    options = [
        "--bpe",
        "gpt2",
        "--gpt2-encoder-json",
        tmp_path / "encoder.json",
        "--gpt2-vocab-bpe",
        tmp_path / "vocab.bpe",
    ]
    checkpoint = exported / "checkpoint_last.pt"
    check_line(guarded(command, "export-hf", checkpoint, tmp_path / "hf", *options), "gpt2")
    outcome = guarded(command, "fill-mask", checkpoint, corpus / "bin", "a <mask>", *options)
    assert outcome.kind in ("done", "refused"), outcome  # a few of its entries may be all that the sentence needs
    masking = ["show-masks", corpus / "bin", "--masker", "whole_word", "--measure", 4]
    check_line(guarded(command, *masking, *options), "--bpe gpt2")


@pytest.mark.parametrize("count", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_sentencepiece_models(count, exported, corpus, tmp_path):
    """Bits flipped, at the commands that turn a model into another tokenizer or ask it about words."""
    path = tmp_path / "sp.model"
    good = (corpus / "sp.model").read_bytes()
    for data in [b"", b"text\n" * 100, bytes(1000), *files.mutations(good, count, seed=count)]:
        path.write_bytes(data)
        words = ["--bpe", "sentencepiece", "--sentencepiece-model", path]
        for arguments in (
            ["export-hf", exported / "checkpoint_last.pt", tmp_path / "hf", *words],
            ["fill-mask", exported / "checkpoint_last.pt", corpus / "bin", "a <mask>", *words],
            ["show-masks", corpus / "bin", "--masker", "whole_word", "--measure", 4, *words],
        ):
            outcome = guarded(command, *arguments, megabytes=900)
            assert outcome.kind in ("done", "refused"), (arguments[0], outcome)
            assert outcome.megabytes < 350, outcome
        shutil.rmtree(tmp_path / "hf", ignore_errors=True)


TEXTS = ["\udcff <mask>", "\0 <mask>", "<mask>" * 500, "\u202e<mask> \x1b[31m", " <mask> ", "<s> <mask> </s>"]


@pytest.mark.parametrize("text", TEXTS)
def test_text_for_fill_mask(text, exported, corpus):
    outcome = guarded(command, "fill-mask", exported / "checkpoint_last.pt", corpus / "bin", text)
    assert outcome.kind in ("done", "refused"), outcome
    if outcome.kind == "refused":
        check_line(outcome)
