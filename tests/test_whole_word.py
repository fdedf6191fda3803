"""Whole words with sentencepiece and with GPT-2 BPE: real encoders, on models that the tests make."""

import json

import harness
import numpy as np
import pytest
from fairseq.data import Dictionary

from fairseq_maskplugins.decoupled_mlm.dictionary import build_vocabulary
from fairseq_maskplugins.maskers import MaskerConfig, WholeWordMasker
from fairseq_maskplugins.maskers.runs import starts_after_gap


def write_gpt2_files(folder, words):
    """A byte-level BPE in the format of GPT-2: the 256 bytes, and a token for every word with a space before it."""
    from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode

    byte = bytes_to_unicode()
    encoder = {symbol: i for i, symbol in enumerate(byte.values())}
    merges = []

    def spell(text):
        return [byte[b] for b in text.encode()]

    for word in words:
        symbols = spell(" " + word)
        while len(symbols) > 1:
            merges.append(f"{symbols[0]} {symbols[1]}")
            symbols = [symbols[0] + symbols[1]] + symbols[2:]
            encoder.setdefault(symbols[0], len(encoder))
    (folder / "encoder.json").write_text(json.dumps(encoder))
    (folder / "vocab.bpe").write_text("#version: 0.2\n" + "\n".join(dict.fromkeys(merges)) + "\n")
    return {"_name": "gpt2", "gpt2_encoder_json": str(folder / "encoder.json"), "gpt2_vocab_bpe": str(folder / "vocab.bpe")}


def words_of(vocabulary, dictionary, line_tokens):
    """The words that the masker finds in ``<s> line </s>``, as lists of symbols."""
    ids = [dictionary.bos()] + [dictionary.index(token) for token in line_tokens] + [dictionary.eos()]
    tokens = np.array([ids])
    maskable = vocabulary.maskable[tokens]
    starts = starts_after_gap(WholeWordMasker(MaskerConfig(), vocabulary).begin_units(tokens, maskable, None), maskable)
    words = []
    for start, inside, token in zip(starts[0], maskable[0], ids):
        if start:
            words.append([])
        if inside:
            words[-1].append(dictionary[token])
    return words


def test_gpt2_bpe(tmp_path):
    """A line's first word has no space before it, and is a word of its own all the same; a character of several bytes that
    is cut between tokens is no word's beginning."""
    from fairseq.data import encoders

    config = write_gpt2_files(tmp_path, ["the", "harbour", "cafe"])
    dictionary = Dictionary()
    bpe = encoders.build_bpe(_as_config(config))
    line = "Old café the harbour, the"
    pieces = bpe.encode(line).split()
    for piece in pieces:
        dictionary.add_symbol(piece)
    dictionary.add_symbol("madeupword0000")
    dictionary.add_symbol("<mask>")
    vocabulary = build_vocabulary(dictionary, False, _as_config(config))
    found = words_of(vocabulary, dictionary, pieces)
    assert [bpe.decode(" ".join(word)) for word in found] == ["Old", " café", " the", " harbour,", " the"]


def test_sentencepiece(corpus):
    import sentencepiece as spm

    config = _as_config({"_name": "sentencepiece", "sentencepiece_model": str(corpus / "sp.model")})
    dictionary = Dictionary.load(str(corpus / "bin" / "dict.txt"))
    dictionary.add_symbol("<mask>")
    vocabulary = build_vocabulary(dictionary, False, config)
    pieces = spm.SentencePieceProcessor(model_file=str(corpus / "sp.model"))
    for line in harness.make_lines(20, seed=9):
        found = words_of(vocabulary, dictionary, pieces.encode(line, out_type=str))
        assert ["".join(word).replace("▁", " ") for word in found] == [" " + word for word in line.split()]
        assert max(map(len, found)) > 2


def test_tokens_that_the_encoder_does_not_know(corpus, tmp_path):
    """A dictionary of other data than the encoder's is named, not silently taken for word beginnings."""
    config = write_gpt2_files(tmp_path, ["the"])
    dictionary = Dictionary.load(str(corpus / "bin" / "dict.txt"))
    dictionary.add_symbol("<mask>")
    with pytest.raises(ValueError, match="--bpe gpt2 does not know .* of dict.txt"):
        build_vocabulary(dictionary, False, _as_config(config)).find_word_begins()


def _as_config(values):
    from omegaconf import OmegaConf

    return OmegaConf.create(values)
