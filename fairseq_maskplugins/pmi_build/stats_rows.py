"""The rows that ``maskplugins pmi stats`` measures on: of text, or of data that fairseq-preprocess wrote."""

import argparse
import os
from dataclasses import fields
from functools import partial
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import numpy as np
from fairseq.data import Dictionary, data_utils, encoders
from fairseq.registry import REGISTRIES
from omegaconf import MISSING, OmegaConf

from ..compat import load_dictionary
from ..decoupled_mlm.dataset import build_blocks, open_stream
from ..decoupled_mlm.dictionary import build_vocabulary, load_tokenizer
from ..errors import UsageError, naming
from ..maskers.pmi import token_begins
from ..vocabulary import Vocabulary
from .rows import Word, number_words, read_words, split_rows
from .text import find_files, read_batches
from .words import WordSplitter


class Rows(NamedTuple):
    vocabulary: Vocabulary
    words: List[List[Word]]
    tokens: List[np.ndarray]  # without <s>


def bpe_configs() -> Dict[str, type]:
    return {name: cls for name, cls in REGISTRIES["bpe"]["dataclass_registry"].items() if cls is not None}


def _spread(count: int, wanted: int) -> np.ndarray:
    """Up to ``wanted`` of ``count`` numbers, evenly spaced; 0 for all."""
    if wanted == 0 or wanted >= count:
        return np.arange(count)
    return np.arange(wanted) * count // wanted


def read_text(args: argparse.Namespace) -> Rows:
    model = args.sentencepiece_model if args.words == "sentencepiece" else None
    model = None if model == MISSING else model
    splitter = WordSplitter(args.words, args.keep_case, model)
    lines = [
        row
        for path in find_files(args.text)
        for text in read_batches(path)
        for row in split_rows(text, splitter, args.tokens_per_sample - 1)
    ]
    if not lines:
        raise UsageError(f"--text {args.text[0]}: holds no words")
    return Rows(*number_words([lines[i] for i in _spread(len(lines), args.rows)]))


def read_data(args: argparse.Namespace) -> Rows:
    if os.pathsep in args.data and not os.path.isdir(args.data):
        raise UsageError(f"DATA must be one directory, got {args.data}: measure them one by one")
    path = os.path.join(args.data, "dict.txt")
    dictionary = load_dictionary(path, "DATA must be a directory that fairseq-preprocess wrote")
    dictionary.add_symbol("<mask>")
    path = os.path.join(args.data, args.split)
    try:
        dataset = data_utils.load_indexed_dataset(path, dictionary)
    except Exception as error:  # whatever a damaged file leads to
        raise UsageError(f"{path}: can't read the data: {' '.join(str(error).split())}") from None
    if dataset is None or len(dataset) == 0:
        raise UsageError(f"{path}.bin: no such data set, or an empty one; fairseq-preprocess writes them")
    bpe = _bpe_config(args)
    with naming({"dict.txt": os.path.join(args.data, "dict.txt")}):
        vocabulary = build_vocabulary(dictionary, False, bpe)
    find_begins, decode = _tokenizer(dictionary, vocabulary, bpe, args.pmi_unit)
    stream = open_stream(dataset, path)
    try:
        blocks = build_blocks(dataset.sizes, args.sample_break_mode, args.tokens_per_sample - 1)
    except ValueError as error:
        raise UsageError(f"--sample-break-mode {args.sample_break_mode}: {error}") from None
    tokens = [np.array(stream.read(*blocks[i])) for i in _spread(len(blocks), args.rows)]
    if max(int(row.max()) for row in tokens if len(row)) >= len(vocabulary):
        raise UsageError(f"{path}: holds ids that dict.txt does not have; preprocess the data with this dictionary")
    return Rows(vocabulary, list(_words(tokens, vocabulary, find_begins, decode, args.keep_case)), tokens)


def _words(tokens: List[np.ndarray], vocabulary: Vocabulary, find_begins: Any, decode: Any, keep: bool) -> Iterator:
    for row in tokens:
        words = read_words(row, find_begins(row), vocabulary.maskable, decode, keep)
        yield [word._replace(first=word.first + 1, end=word.end + 1) for word in words]  # <s> comes before


def _bpe_config(args: argparse.Namespace) -> Any:
    if args.bpe is None:
        return None
    if args.bpe not in encoders.BPE_REGISTRY:
        raise UsageError(f"--bpe must be one of {', '.join(sorted(encoders.BPE_REGISTRY))}, got {args.bpe!r}")
    config = bpe_configs().get(args.bpe)
    if config is None:
        return args.bpe
    names = [f.name for f in fields(config) if not f.name.startswith("_")]
    return OmegaConf.create({"_name": args.bpe, **{name: getattr(args, name) for name in names}})


def _tokenizer(dictionary: Dictionary, vocabulary: Vocabulary, bpe: Any, unit: str) -> Tuple[Any, Any]:
    """Functions that say where words begin in a row of ids, and what the text of some tokens is."""
    symbols = dictionary.symbols
    if bpe is None:
        return lambda ids: np.ones(len(ids), dtype=bool), lambda ids: " ".join(symbols[i] for i in ids)
    encoder = load_tokenizer(bpe)
    known: Dict[Tuple[int, ...], str] = {}

    def decode(ids: Tuple[int, ...]) -> str:
        if ids not in known:
            known[ids] = encoder.decode(" ".join(symbols[i] for i in ids))
        return known[ids]

    if unit == "token":
        empty = np.array([not piece for piece in vocabulary.find_pieces()]) & vocabulary.maskable
        return partial(token_begins, empty), decode
    begins = vocabulary.find_word_begins()  # tells what is wrong with the tokenizer, if anything is
    return lambda ids: begins[ids], decode
