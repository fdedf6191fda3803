"""The folder of a RoBERTa of ``transformers``: read, and checked against itself (no fairseq here)."""

import json
import os
from typing import Any, Dict, Tuple

import torch

from ..errors import UsageError
from .config import RECORD
from .weights import Tensors, base_name

KINDS = ("roberta", "roberta-prelayernorm", "xlm-roberta", "camembert")
# what masked-LM and classification models may hold besides, and fairseq has no use for
LEFT_OUT = (".position_ids", ".embeddings.token_type_ids", "lm_head.decoder.bias")
# entries of config.json and what they must lie in; the tensors say the same
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


def read_folder(path: str) -> Tuple[Dict[str, Any], Tensors]:
    """``config.json`` and the tensors of a folder.

    Raises:
        UsageError: a file is missing or can't be read, or it is another kind of model.
    """
    from safetensors.torch import load_file

    config = read_json_object(os.path.join(path, "config.json"))
    if config.get("model_type") not in KINDS:
        raise UsageError(f"{path}: model_type must be one of {', '.join(KINDS)}, got {config.get('model_type')}")
    names = ["model.safetensors"]
    index = os.path.join(path, names[0] + ".index.json")
    if os.path.isfile(index):
        parts = read_json_object(index).get("weight_map")
        if not isinstance(parts, dict) or not all(isinstance(name, str) for name in parts.values()):
            raise UsageError(f"{index}: weight_map must name a file for each tensor")
        names = sorted(set(parts.values()))
        outside = [name for name in names if os.path.basename(name) != name]
        if outside:
            raise UsageError(f"{index}: weight_map must name files of this folder, got {outside[0]}")
    tensors: Tensors = {}
    for name in names:
        where = os.path.join(path, name)
        if not os.path.isfile(where):
            raise UsageError(f"{where}: can't read it: no such file")
        try:
            tensors.update(load_file(where))
        except Exception as error:  # safetensors and torch raise of many kinds, for types that torch does not have, say
            raise UsageError(f"{where}: can't read it: {' '.join(str(error).split())[:200]}") from None
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() and not name.endswith(LEFT_OUT):
            raise UsageError(f"{path}: {name} must hold floating-point numbers, got {tensor.dtype}")
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor.float()).all()):
            raise UsageError(f"{path}: {name} holds NaN or infinite values")
    check_sizes(config, tensors)
    return config, tensors


def read_json_object(path: str) -> Dict[str, Any]:
    """A JSON file whose content is an object; whatever is wrong with it is one line."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: can't read it: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path}: can't read it: must hold an object")
    return found


def check_sizes(config: Dict[str, Any], tensors: Tensors) -> None:
    """The sizes in ``config.json`` must be those of the tensors: a layer that is not there, a row too much.

    Raises:
        UsageError: names the entry.
    """
    for name in _SIZES:
        if type(config.get(name)) is not int or not 0 < config[name] < 2**31:
            raise UsageError(f"config.json: {name} must be a whole number above 0, got {config.get(name)}")
    base = base_name(config["model_type"] == "roberta-prelayernorm")
    words = tensors.get(f"{base}.embeddings.word_embeddings.weight")
    layers = {name.split(".")[3] for name in tensors if name.startswith(f"{base}.encoder.layer.")}
    width = config["hidden_size"]
    if words is None or tuple(words.shape) != (config["vocab_size"], width):
        raise UsageError(
            f"config.json: vocab_size and hidden_size must be those of the word embeddings, got {config['vocab_size']} and "
            f"{width} for {'none' if words is None else list(words.shape)}"
        )
    if len(layers) != config["num_hidden_layers"]:
        raise UsageError(
            f"config.json: num_hidden_layers must be the number of layers that there are tensors of, {len(layers)}, got "
            f"{config['num_hidden_layers']}"
        )
    if width % config["num_attention_heads"]:
        raise UsageError(
            f"config.json: num_attention_heads must divide hidden_size, {width}, got {config['num_attention_heads']}"
        )
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        value = config.get(name, 0.1)
        if not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise UsageError(f"config.json: {name} must lie in [0, 1], got {value}")
    rows = config.get(RECORD, {}).get("dictionary_rows", 1)
    if not 0 < rows <= config["vocab_size"]:
        raise UsageError(f"config.json: {RECORD}.dictionary_rows must lie in [1, vocab_size], got {rows}")
