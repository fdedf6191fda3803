"""Exported tokenizers give fairseq's ids on real text: sentencepiece with a dictionary, and GPT-2's byte-level BPE."""

import io
import json
import random

import harness
import pytest
from fairseq.data import Dictionary
from transformers import AutoTokenizer

from fairseq_maskplugins.errors import UsageError
from fairseq_maskplugins.files import write_folder
from fairseq_maskplugins.hf.gpt2 import build_gpt2
from fairseq_maskplugins.hf.importing import number_gpt2
from fairseq_maskplugins.hf.sentencepiece import build_sentencepiece

# besides plain prose: characters that no model knows, alone, in words and in runs, and all kinds of spaces
ODD = [
    "the 黎太祖 harbour",
    "X黎太祖 黎 黎太 太黎 the黎太祖railway 黎the",
    " two  spaces,\ttab and an end ",
    "ﬁne ① Ａ ½ é",
    "",
    "madeupword0001 <unk>",
    "☃",
    "don't 'tis 12,000 (and so on)...",
]


def encode(pieces, dictionary):
    ids = dictionary.encode_line(pieces, append_eos=True, add_if_not_exist=False).tolist()
    return [dictionary.bos(), *ids]


def as_fairseq(ids, dictionary):
    """Rows behind the dictionary's are pieces that it lacks."""
    return [i if i < len(dictionary) else dictionary.unk() for i in ids]


def open_tokenizer(built, folder):
    # without a config.json that names the model, AutoTokenizer would not look further
    write_folder(str(folder), {**built.files, "config.json": b'{"model_type": "roberta"}'})
    return AutoTokenizer.from_pretrained(str(folder))


def train_pieces(corpus, kind, **options):
    import sentencepiece as spm

    model = io.BytesIO()
    lines = (corpus / "train.txt").read_text().splitlines()
    spm.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, model_type=kind, minloglevel=2, **options)
    return model.getvalue()


@pytest.mark.parametrize(
    "kind, options",
    [
        ("unigram", dict(vocab_size=90)),
        ("unigram", dict(vocab_size=90, normalization_rule_name="identity", remove_extra_whitespaces=False)),
        ("unigram", dict(vocab_size=340, byte_fallback=True)),
        ("bpe", dict(vocab_size=120)),
        ("bpe", dict(vocab_size=380, byte_fallback=True)),
    ],
    ids=["unigram", "plain", "unigram-bytes", "bpe", "bpe-bytes"],
)
def test_sentencepiece(kind, options, corpus, tmp_path):
    import sentencepiece as spm

    content = train_pieces(corpus, kind, **options)
    pieces = spm.SentencePieceProcessor(model_proto=content)
    symbols = [pieces.id_to_piece(i) for i in range(3, len(pieces))]
    random.Random(5).shuffle(symbols)
    dictionary = Dictionary()
    # three pieces never occurred; runs of unknown characters and padding words are entries; <mask> stands in the middle
    for symbol in [*symbols[3:40], "黎太祖", "黎", "madeupword0001", "<mask>", *symbols[40:]]:
        dictionary.add_symbol(symbol)
    built = build_sentencepiece(content, dictionary.symbols, 64)
    assert sorted(built.aliases) == sorted(symbols[:3])
    assert built.unreachable == (["黎", "黎太祖"] if kind == "bpe" or "byte_fallback" in options else [])
    tokenizer = open_tokenizer(built, tmp_path / "hf")
    assert tokenizer.mask_token_id == dictionary.index("<mask>") and tokenizer.pad_token_id == 1
    texts = (corpus / "valid.txt").read_text().splitlines() + ODD
    for text in texts:
        if "remove_extra_whitespaces" in options and text.startswith(" "):
            continue  # sentencepiece puts a second mark before the space that stands there, tokenizers does not
        if "<unk>" in text:
            text = text.replace(" <unk>", "")  # a special token to transformers, five characters to sentencepiece
        expected = encode(" ".join(pieces.encode(text, out_type=str)), dictionary)
        if built.unreachable:  # in a Unigram model of bytes, and in BPE, they are <unk> or bytes
            expected = [3 if dictionary[i] in built.unreachable else i for i in expected]
        found = as_fairseq(tokenizer(text)["input_ids"], dictionary)
        assert found == expected, (text, tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"]))
    if "byte_fallback" not in options:
        assert tokenizer.decode(tokenizer("the 黎太祖 harbour")["input_ids"], skip_special_tokens=True) in (
            "the 黎太祖 harbour",
            "the  harbour",
        )
    ids = tokenizer("the old <mask>, the harbour")["input_ids"]
    assert ids.count(tokenizer.mask_token_id) == 1
    after = ids[ids.index(tokenizer.mask_token_id) + 1]
    assert not tokenizer.convert_ids_to_tokens(after).startswith("▁")  # no space follows the mask
    pair = tokenizer("the", "harbour")["input_ids"]
    assert pair.count(2) == 3 and pair[0] == 0 and pair[-1] == 2


def train_gpt2(corpus):
    from tokenizers import ByteLevelBPETokenizer

    trained = ByteLevelBPETokenizer()
    trained.train([str(corpus / "train.txt")], vocab_size=400, show_progress=False)
    model = json.loads(trained.to_str())["model"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    numbers = number_gpt2([tuple(m.split(" ")) for m in merges])
    return json.dumps(numbers).encode(), ("\n".join(["#version: 0.2", *merges]) + "\n").encode()


def open_gpt2(folder):
    from fairseq.data.encoders.gpt2_bpe import GPT2BPE, GPT2BPEConfig

    files = dict(gpt2_encoder_json=str(folder / "encoder.json"), gpt2_vocab_bpe=str(folder / "vocab.bpe"))
    return GPT2BPE(GPT2BPEConfig(**files))


def test_gpt2(corpus, tmp_path):
    encoder, merges = train_gpt2(corpus)
    (tmp_path / "encoder.json").write_bytes(encoder)
    (tmp_path / "vocab.bpe").write_bytes(merges)
    bpe = open_gpt2(tmp_path)
    lines = (corpus / "valid.txt").read_text().splitlines()
    dictionary = Dictionary()
    for line in lines[:5]:  # the text is where the dictionary is from: most of the tokens never occurred
        for symbol in bpe.encode(line).split():
            dictionary.add_symbol(symbol)
    for symbol in ("madeupword0000", "madeupword0001", "<mask>"):
        dictionary.add_symbol(symbol)
    built = build_gpt2(encoder, merges, dictionary.symbols, 64)
    assert len(built.aliases) + len(dictionary) == len(json.loads(encoder)) - 1 + 7
    tokenizer = open_tokenizer(built, tmp_path / "hf")
    assert "Roberta" in type(tokenizer).__name__ and tokenizer.mask_token_id == len(dictionary) - 1
    for text in [*lines, *ODD[:5], ODD[6], ODD[7]]:
        found = as_fairseq(tokenizer(text)["input_ids"], dictionary)
        assert found == encode(bpe.encode(text), dictionary), text
        assert tokenizer.decode(tokenizer(text)["input_ids"][1:-1]) == text
    for arguments, text in (
        ((b"[", merges), "can't read them"),
        ((encoder, b"#\na b c\n"), "must belong together"),
        ((encoder, merges, ["<s>", "<pad>", "</s>", "<unk>", "the", "<mask>"]), "was not made with these GPT-2 files"),
    ):
        with pytest.raises(UsageError, match=text):
            build_gpt2(*arguments, *([dictionary.symbols] if len(arguments) == 2 else []), 64)


def test_gpt2_there_and_back(corpus, tmp_path):
    """A folder that did not come from us: dictionary and GPT-2's files are made from its tokenizer."""
    import torch
    from tiny_roberta import build

    from fairseq_maskplugins.cli import main

    encoder, merges = train_gpt2(corpus)
    dictionary = Dictionary()
    for number in json.loads(encoder).values():
        dictionary.add_symbol(str(number))
    dictionary.add_symbol("<mask>")
    model = build("roberta_base", dictionary)
    for name, content in (("encoder.json", encoder), ("vocab.bpe", merges)):
        (tmp_path / name).write_bytes(content)
    torch.save(dict(model=model.state_dict(), args=model.args), tmp_path / "model.pt")
    dictionary.save(str(tmp_path / "dict.txt"))
    files = ["--gpt2-encoder-json", str(tmp_path / "encoder.json"), "--gpt2-vocab-bpe", str(tmp_path / "vocab.bpe")]
    command = ["export-hf", str(tmp_path / "model.pt"), str(tmp_path / "hf"), "--dict", str(tmp_path / "dict.txt")]
    assert main([*command, "--bpe", "gpt2", *files]) == 0
    for name in ("dict.txt", "encoder.json", "vocab.bpe"):
        (tmp_path / "hf" / name).unlink()
    assert main(["import-hf", str(tmp_path / "hf"), str(tmp_path / "back")]) == 0
    back = Dictionary.load(str(tmp_path / "back" / "dict.txt"))
    back.add_symbol("<mask>")
    assert back.symbols == dictionary.symbols
    harness.assert_same_weights(tmp_path / "model.pt", tmp_path / "back" / "model.pt")
    bpe = open_gpt2(tmp_path / "back")
    text = "The old captain's harbour, 1934."
    assert encode(bpe.encode(text), back) == AutoTokenizer.from_pretrained(str(tmp_path / "hf"))(text)["input_ids"]


def test_models_that_tokenizers_cannot_stand_in_for(corpus):
    symbols = ["<s>", "<pad>", "</s>", "<unk>", "▁the", "<mask>"]
    for options, text in (
        (dict(user_defined_symbols=["<sep>"]), "symbols defined by the user can't be exported, found '<sep>'"),
        (dict(treat_whitespace_as_suffix=True), "must write spaces as ▁ before words"),
    ):
        with pytest.raises(UsageError, match=text):
            build_sentencepiece(train_pieces(corpus, "unigram", vocab_size=90, **options), symbols, 64)
    with pytest.raises(UsageError, match="was not made with this sentencepiece model"):
        build_sentencepiece(train_pieces(corpus, "unigram", vocab_size=90), [*symbols[:4], "q q", "<mask>"], 64)
