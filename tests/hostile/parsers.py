"""Every parser as a function of bytes that returns or raises an error of ours: what the fuzzers call.

``PARSERS[name](data)`` raises nothing but what is a fault, ``READERS[name](data)`` what the parser raises.
``SEEDS[name]`` are valid inputs, to begin from.
"""

import argparse
import collections
import gzip
import io
import json
import os
import tempfile
import zipfile
from contextlib import contextmanager

import files
import numpy as np
import torch
import zstandard
from safetensors.numpy import save

import fairseq_maskplugins  # noqa: F401  (registers)
from fairseq_maskplugins.checkpoints import Refused, check_state, explain_reading, is_harmless, read_checkpoint
from fairseq_maskplugins.child_tuning import maskfile, show
from fairseq_maskplugins.compat import load_dictionary
from fairseq_maskplugins.decoupled_mlm.dictionary import build_vocabulary
from fairseq_maskplugins.decoupled_mlm.rates import build_schedule
from fairseq_maskplugins.errors import UsageError
from fairseq_maskplugins.fill_mask.command import encode_around_masks
from fairseq_maskplugins.hf.folder import check_sizes, read_json_object
from fairseq_maskplugins.hf.gpt2 import build_gpt2
from fairseq_maskplugins.hf.importing import plan_dictionary
from fairseq_maskplugins.hf.sentencepiece import read_model
from fairseq_maskplugins.maskers import pmi_vocab
from fairseq_maskplugins.maskers.phrase_hash import hash_phrases
from fairseq_maskplugins.maskers.phrase_list import parse_phrases
from fairseq_maskplugins.pieces import byte_alphabet
from fairseq_maskplugins.pmi_build.count import count_batch
from fairseq_maskplugins.pmi_build.duck import parse_memory
from fairseq_maskplugins.pmi_build.rows import split_rows
from fairseq_maskplugins.pmi_build.text import read_batches
from fairseq_maskplugins.pmi_build.words import MODES, WordSplitter
from fairseq_maskplugins.show_masks.texts import entry_texts
from fairseq_maskplugins.variance.gradients import parse_mix

PARSERS, READERS, SEEDS = {}, {}, {}


def parser(*seeds):
    """Register; an error of ours must be one printable line."""

    def register(function):
        def run(data):
            try:
                function(data)
            except UsageError as error:
                assert str(error).isprintable() and len(str(error)) < 2100

        PARSERS[function.__name__], READERS[function.__name__], SEEDS[function.__name__] = run, function, seeds
        return function

    return register


@contextmanager
def file_of(data):
    """A file's name; in memory, where the system has that."""
    folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(data)
        file.flush()
        yield file.name


def text_of(data):
    return data.decode("utf-8", errors="replace")


def values_of(data):
    """Any JSON value, or an end of the run."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise UsageError("no JSON") from None


PHRASES = b"new york\t3.5\t11\nof the\n\xd7\xa9\xd7\x9c \xd7\xa2\n"


@parser(PHRASES, gzip.compress(PHRASES, mtime=0))
def phrase_list(data):
    for batch in parse_phrases("list", data):
        hashes, counts = hash_phrases(batch, match_case=False)
        assert len(hashes) == len(counts) == len(batch) and counts.min() >= 1


@parser(PHRASES, gzip.compress(PHRASES, mtime=0), zstandard.compress(PHRASES))
def text_file(data):
    with file_of(data) as path:
        for text in read_batches(path, batch_bytes=64):
            text.encode("utf-8")


@parser(b"New York's (old) harbour\n\xe4\xbd\xa0\xe5\xa5\xbd abc\n")
def words(data):
    text = text_of(data)
    for mode in MODES[:2]:
        splitter = WordSplitter(mode)
        split = splitter.split(text)
        assert len(split.ids) == len(split.segments) and all(split.words)
        count_batch(text, splitter)
        split_rows(text, splitter, 3)


@parser(b"zebra 5\n<mask> 3\n<s> 1 #fairseq:overwrite\n")
def dictionary(data):
    with file_of(data) as path:
        found = load_dictionary(path)
    found.add_symbol("<mask>")
    vocabulary = build_vocabulary(found, True, None)
    assert all(text.isprintable() for text in entry_texts(found.symbols, vocabulary))


_STATE = {
    "model": {"a": torch.ones(3)},
    "args": argparse.Namespace(adam_betas="(0.9, 0.98)"),
    "cfg": None,
    "extra_state": {"n": np.float64(1.5)},
}


@parser(files.saved(_STATE), files.saved(_STATE, _use_new_zipfile_serialization=False))
def checkpoint(data):
    with explain_reading("model.pt"):
        read_checkpoint(io.BytesIO(data))


_ZIP = files.saved(_STATE)


def _pickle_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return file.read(next(name for name in file.namelist() if name.endswith("data.pkl")))


_KEYS = {
    (1, "a"): {1, 2},
    None: collections.OrderedDict(x=b"\xff"),
    torch.half: collections.Counter("aa"),
    7: np.float32(1),
}


@parser(_pickle_of(_ZIP), _pickle_of(files.saved(_KEYS)))
def checkpoint_pickle(data):
    """The pickle alone, in a file that is whole."""
    checkpoint(files.with_pickle(_ZIP, data))


@parser(b'{"model": {}, "args": {"adam_betas": "(1, 2)"}, "cfg": {"task": [1, 2]}}')
def checkpoint_state(data):
    try:
        check_state(values_of(data), 1000)
    except Refused:
        pass


@parser(b"[(512, 3, 2)] * 4 + [(1, -2.5)]", b"{'a': True}", b"4000,20000")
def evaluated_option(data):
    text = text_of(data)
    if is_harmless(text):
        try:
            found = eval(text, {"__builtins__": {}})  # names lead nowhere, so that only data is left
        except Exception:
            return
        assert isinstance(found, (int, float, complex, str, bytes, tuple, list, dict, type(None), type(...)))


_MANIFEST = {"parameters": [{"name": "a", "shape": [2], "covered": True}], "reserve_p": 0.5}


@parser(
    save({"a": np.ones(2, bool)}, {"maskplugins": "mask", "version": "1", "manifest": json.dumps(_MANIFEST)}),
)
def mask_file(data):
    with file_of(data) as path:
        show.format_table(*_table(*maskfile.read(path, "mask")))


@parser(json.dumps(_MANIFEST).encode())
def mask_manifest(data):
    mask_file(save({"a": np.ones(2, bool)}, {"maskplugins": "mask", "version": "1", "manifest": text_of(data)}))


def _table(manifest, tensors):
    maskfile.check_parameters("mask", manifest, None, sum(np.prod(p["shape"]) for p in manifest["parameters"]))
    return show.shares(manifest, tensors), manifest


_CONFIG = {"vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


@parser(json.dumps(_CONFIG).encode())
def hf_config(data):
    with file_of(data) as path:
        config = read_json_object(path)
    tensors = {"roberta.embeddings.word_embeddings.weight": torch.zeros(9, 4)}
    tensors["roberta.encoder.layer.0.output.dense.bias"] = torch.zeros(4)
    check_sizes({**config, "model_type": "roberta"}, tensors)


@parser(b'{"vocab": {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 4, "a": 5}, "rows": 6}')
def hf_vocabulary(data):
    found = values_of(data)
    vocab = found.get("vocab") if isinstance(found, dict) else None
    if isinstance(vocab, dict) and all(type(row) is int for row in vocab.values()):
        names = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
        symbols, order = plan_dictionary(vocab, 10, dict(zip(names, names)))
        assert len(symbols) == len(order) == 10


_GPT2 = json.dumps({**{c: b for c, b in byte_alphabet().items()}, "ab": 256}).encode()


@parser(_GPT2 + b"\n\n#version: 0.2\na b\n")
def gpt2_files(data):
    encoder, _, merges = data.partition(b"\n\n")
    build_gpt2(encoder, merges, ["<s>", "<pad>", "</s>", "<unk>", "1", "2", "<mask>"], 10)


@parser(b"\x0a\x0a\x0a\x03abc\x15\x00\x00\x80\xbf")
def sentencepiece_model(data):
    read_model(data)


_HASHES = hash_phrases(["new york", "of the", "in a city"], False)


def _cache():
    with tempfile.TemporaryDirectory() as folder:
        pmi_vocab._write(f"{folder}/cache", pmi_vocab.build_table(*_HASHES), "key")
        with open(f"{folder}/cache", "rb") as file:
            return file.read()


@parser(_cache()[:200])
def phrase_cache(data):
    """The header alone: what follows is filled up, and its sum made right."""
    body = _cache()[pmi_vocab._HEADER :]
    start = len(pmi_vocab._MAGIC)
    try:
        info = {**json.loads(data[start:]), "key": "key", "digest": pmi_vocab._digest([body])}
        head = (pmi_vocab._MAGIC + json.dumps(info).encode()).ljust(pmi_vocab._HEADER)
    except (ValueError, TypeError, RecursionError):
        head = data.ljust(pmi_vocab._HEADER)
    with file_of(head + body) as path:
        table = pmi_vocab._open(path, "key")
    if table is not None:
        table.find(_HASHES[0])


@parser(b"4GB", b"512 mib", b"0.25TiB")
def memory_limit(data):
    parse_memory(text_of(data))


@parser(b"mapnet@0.5", b"mapnet")
def masker_mix(data):
    parse_mix(text_of(data))


@parser(b"0.4 0.2 0.3", b"0.4 x 0.3 0.1 x 0.9")
def rates(data):
    text = text_of(data)
    numbers = []
    for part in text.split()[:6]:
        try:
            numbers.append(float(part))
        except ValueError:
            numbers.append(None)
    if numbers and numbers[0] is not None:
        build_schedule(*numbers, max_update=10).at(5)


@parser(b"a <mask> day", "\u2581<mask>x <mask>".encode())
def text_around_masks(data):
    tokens = encode_around_masks(lambda text: " ".join("\u2581" + word for word in text.split()), text_of(data))
    assert tokens.count("<mask>") >= data.decode("utf-8", errors="replace").count("<mask>")
