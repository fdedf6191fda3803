"""``maskplugins import-hf FOLDER OUT``."""

import argparse
import json
import os
from typing import Any, Dict, List, Tuple

from ..compat import require_library
from ..errors import UsageError, naming
from ..files import check_free, write_folder

EXAMPLE = """example:
  maskplugins import-hf roberta-hf roberta-fairseq
  fairseq-preprocess --only-source --srcdict roberta-fairseq/dict.txt ...
  fairseq-train data-bin --finetune-from-model roberta-fairseq/model.pt --arch roberta_base ...
"""
# files of tokenizers as fairseq reads them, which export-hf puts beside the model
CARRIED = ("sp.model", "encoder.json", "vocab.bpe")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="folder with config.json, model.safetensors and a tokenizer")
    parser.add_argument("output", metavar="OUT", help="folder to make, with model.pt and dict.txt; must not exist or be empty")
    parser.add_argument("--head", metavar="NAME", help="what to call a classification head (default: as it was exported)")


def run(args: argparse.Namespace) -> None:
    check_free(args.output)
    require_library("safetensors", "hf")
    from .config import RECORD
    from .export import dictionary_file
    from .folder import read_folder
    from .importing import import_model

    known = {name: os.path.join(args.folder, name) for name in ("config.json", "model.safetensors")}
    with naming(known):
        config, tensors = read_folder(args.folder)
    ours = os.path.join(args.folder, "dict.txt")
    files = {name: _read(os.path.join(args.folder, name)) for name in CARRIED}
    if "dictionary_rows" in config.get(RECORD, {}) and os.path.isfile(ours):
        order, dictionary = list(range(config[RECORD]["dictionary_rows"])), _read(ours)
    else:
        symbols, order, found = _read_tokenizer(args.folder, int(config["vocab_size"]))
        dictionary = dictionary_file(symbols, [1] * len(symbols))
        files.update(found)
    with naming(known):
        done = import_model(config, tensors, order, args.head)
    content = {"model.pt": done.checkpoint, "dict.txt": dictionary, **files}
    write_folder(args.output, {name: data for name, data in content.items() if data is not None})
    print("\n".join([*done.lines, f"wrote {args.output}"]))


def _read(path: str) -> Any:
    if not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{path}: can't read it: {error.strerror or error}") from None


def _read_tokenizer(folder: str, rows: int) -> Tuple[List[str], List[int], Dict[str, bytes]]:
    """Entries of the dictionary, their rows, and the files of a byte-level BPE."""
    require_library("transformers", "hf")
    from transformers import AutoTokenizer

    from .importing import number_gpt2, plan_dictionary

    try:
        # code that a folder brings is not run, and nobody is asked whether it should be
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        vocab = tokenizer.get_vocab()
        backend = json.loads(tokenizer.backend_tokenizer.to_str()) if tokenizer.is_fast else {}
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # many kinds, in the words of transformers; a panic of Rust's is no Exception
        raise UsageError(f"{folder}: can't load its tokenizer: {' '.join(str(error).split())[:200]}") from None
    special = {
        "<s>": tokenizer.cls_token or tokenizer.bos_token,
        "<pad>": tokenizer.pad_token,
        "</s>": tokenizer.sep_token or tokenizer.eos_token,
        "<unk>": tokenizer.unk_token,
        "<mask>": tokenizer.mask_token,
    }
    symbols, order = plan_dictionary(vocab, rows, special)
    if "ByteLevel" not in json.dumps(backend.get("pre_tokenizer")):
        return symbols, order, {}
    if not isinstance(backend["model"].get("merges"), list):
        raise UsageError(f"{folder}: its tokenizer must be a BPE, got {backend['model'].get('type')}")
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in backend["model"]["merges"]]
    numbers = number_gpt2(merges)
    files = {
        "encoder.json": json.dumps(numbers).encode(),
        "vocab.bpe": ("\n".join(["#version: 0.2", *map(" ".join, merges)]) + "\n").encode(),
    }
    return [str(numbers.get(symbol, symbol)) for symbol in symbols], order, files
