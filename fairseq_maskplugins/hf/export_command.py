"""``maskplugins export-hf CHECKPOINT OUT``."""

import argparse
import os
from typing import Any, List, Optional

from ..compat import load_dictionary, require_library
from ..errors import CheckpointError, UsageError, naming
from ..files import check_free, write_folder

EXAMPLE = """examples:
  maskplugins export-hf checkpoints/checkpoint_best.pt roberta-hf
  maskplugins export-hf tuned/checkpoint_best.pt classifier-hf --head head --labels data-bin/label/dict.txt
  maskplugins export-hf model.pt roberta-hf --dict dict.txt --bpe gpt2 \\
      --gpt2-encoder-json encoder.json --gpt2-vocab-bpe vocab.bpe

then, in Python:
  from transformers import pipeline
  pipeline("fill-mask", "roberta-hf")("The capital of France is <mask>.")
"""
MODEL_FILES = {"sentencepiece": ("sentencepiece_model",), "gpt2": ("gpt2_encoder_json", "gpt2_vocab_bpe")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="checkpoint of a RoBERTa that fairseq trained")
    parser.add_argument("output", metavar="OUT", help="folder to make; must not exist or be empty")
    parser.add_argument("--dict", metavar="FILE", help="dict.txt (default: that of the checkpoint's data)")
    parser.add_argument("--bpe", help="sentencepiece or gpt2 (default: what the checkpoint names)")
    parser.add_argument("--sentencepiece-model", metavar="FILE", help="model file, for --bpe sentencepiece")
    parser.add_argument("--gpt2-encoder-json", metavar="FILE", help="encoder.json, for --bpe gpt2")
    parser.add_argument("--gpt2-vocab-bpe", metavar="FILE", help="vocab.bpe, for --bpe gpt2")
    parser.add_argument("--no-tokenizer", action="store_true", help="export the model alone")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--head", metavar="NAME", help="classification head to export (default: the only one, if any)")
    kind.add_argument("--masked-lm", action="store_true", help="export the masked-LM head, though there are others")
    parser.add_argument(
        "--labels", metavar="FILE", help="dict.txt of the labels (default: that of the checkpoint's data, else LABEL_0 ...)"
    )


def run(args: argparse.Namespace) -> None:
    check_free(args.output)
    require_library("safetensors", "hf")
    from ..checkpoints import read_checkpoint
    from ..correct_embeddings.checkpoint import option_of
    from .export import dictionary_file, export_checkpoint

    state = read_checkpoint(args.checkpoint)
    data = str(option_of(state, "task", "data") or "").split(os.pathsep)[0]
    task = option_of(state, "task", "_name") or option_of(state, "task", "task")
    paths = [args.dict] if args.dict else [os.path.join(data, part, "dict.txt") for part in ("input0", ".")]
    if not (args.dict or data):
        raise UsageError(f"{args.checkpoint}: does not name its data: give --dict")
    path = _find_dictionary(paths, "--dict")
    dictionary = load_dictionary(path)
    dictionary.add_symbol("<mask>")
    try:
        labels = _labels(args, state, os.path.join(data, "label", "dict.txt") if task else "")
        with naming({"dict.txt": path}):
            symbols, asked = dictionary.symbols, bool(args.labels)
            built = None if args.no_tokenizer else _tokenizer(args, state, symbols)
            done = export_checkpoint(state, symbols, built, args.head, args.masked_lm, labels, asked)
    except CheckpointError as error:
        raise error.at(args.checkpoint) from error
    except UsageError:
        raise
    except Exception as error:  # tensors of any shapes, options of any types
        said = " ".join(str(error).split())[:200]
        raise UsageError(f"{args.checkpoint}: its tensors and settings don't fit together: {said}") from None
    extra = {"dict.txt": dictionary_file(dictionary.symbols, dictionary.count)}
    write_folder(args.output, {**done.files, **extra})
    print("\n".join([*done.lines, f"wrote {args.output}"]))


def _find_dictionary(paths: List[str], option: str) -> str:
    found = [path for path in paths if os.path.isfile(path)]
    if not found:
        raise UsageError(f"{os.path.normpath(paths[-1])}: no such dictionary: give {option}")
    return found[0]


def _labels(args: argparse.Namespace, state: Any, default: str) -> Optional[List[str]]:
    from ..correct_embeddings.checkpoint import option_of
    from ..vocabulary import is_padding_word

    if args.labels is None and not os.path.isfile(default):
        return None
    if option_of(state, "task", "regression_target") and args.labels is None:
        return None
    dictionary = load_dictionary(_find_dictionary([args.labels or default], "--labels"))
    return [name for name in dictionary.symbols[dictionary.nspecial :] if not is_padding_word(name)]


def _tokenizer(args: argparse.Namespace, state: Any, symbols: List[str]) -> Any:
    from ..correct_embeddings.checkpoint import option_of

    require_library("tokenizers", "hf")
    bpe = args.bpe or option_of(state, "bpe", "_name") or option_of(state, "bpe", "bpe")
    if bpe not in MODEL_FILES:
        raise UsageError(f"--bpe must be {' or '.join(MODEL_FILES)}, got {bpe}; --no-tokenizer exports the model without one")
    content, given = [], {}
    for name in MODEL_FILES[bpe]:
        option = f"--{name.replace('_', '-')}"
        path = getattr(args, name) or option_of(state, "bpe", name)
        if not path:
            raise UsageError(f"{option} is needed: the checkpoint does not name the file")
        content.append(_read(path, option))
        given[option] = path
    longest = int(state["model"][_positions(state["model"])].shape[0]) - 2
    if bpe == "gpt2":
        from .gpt2 import build_gpt2

        with naming({", ".join(given): ", ".join(given.values())}):
            return build_gpt2(*content, symbols, longest)
    require_library("sentencepiece", "hf")
    from .sentencepiece import build_sentencepiece

    with naming({option: f"{option} {path}" for option, path in given.items()}):
        return build_sentencepiece(*content, symbols, longest)


def _positions(model: Any) -> str:
    for name in model:
        if name.endswith("sentence_encoder.embed_positions.weight"):
            return name
    raise CheckpointError("must hold embed_positions.weight: a RoBERTa with learned positions")


def _read(path: str, option: str) -> bytes:
    if "://" in path:
        from fairseq.file_utils import cached_path

        path = cached_path(path)
    if not os.path.isfile(path):  # nor a device: the path may be the checkpoint's, and a device has no end
        raise UsageError(f"{path}: can't read it (no such file): give {option}")
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{path}: can't read it ({error.strerror}): give {option}") from None
