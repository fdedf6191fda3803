"""Read the folder of a RoBERTa of ``transformers`` (no fairseq here)."""

import json
import os
from typing import Any, Dict, Tuple

import torch

from ..errors import UsageError, one_line
from .weights import Tensors, base_name

KINDS = ("roberta", "roberta-prelayernorm", "xlm-roberta", "camembert")
# what masked-LM and classification models may hold besides, and fairseq has no use for
LEFT_OUT = (".position_ids", ".embeddings.token_type_ids", "lm_head.decoder.bias")
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


def read_folder(path: str) -> Tuple[Dict[str, Any], Tensors]:
    """Read ``config.json`` and the tensors of a folder.

    Raises:
        UsageError: a file is missing or can't be read, the weights are not finite, or it is another kind of model.
    """
    config = read_json_object(os.path.join(path, "config.json"))
    if config.get("model_type") not in KINDS:
        raise UsageError(f"{path}: model_type must be one of {', '.join(KINDS)}, got {config.get('model_type')}")
    tensors = _read_tensors(path)
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() and not name.endswith(LEFT_OUT):
            raise UsageError(f"{path}: {name} must hold floating-point numbers, got {tensor.dtype}")
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor.float()).all()):
            raise UsageError(f"{path}: {name} holds NaN or infinite values")
    check_sizes(config, tensors)
    return config, tensors


def _read_tensors(path: str) -> Tensors:
    from safetensors.torch import load_file

    names = ["model.safetensors"]
    index = os.path.join(path, names[0] + ".index.json")
    if os.path.isfile(index):
        parts = read_json_object(index).get("weight_map")
        if not isinstance(parts, dict):
            raise UsageError(f"{index}: weight_map must name a file for each tensor")
        names = sorted(set(parts.values()))
    tensors: Tensors = {}
    for name in names:
        file = os.path.join(path, name)
        if not os.path.isfile(file):
            raise UsageError(f"{file}: can't read it: no such file")
        try:
            tensors.update(load_file(file))
        except Exception as error:  # safetensors and torch raise many kinds
            raise UsageError(f"{file}: can't read it: {one_line(error, 200)}") from None
    return tensors


def read_json_object(path: str) -> Dict[str, Any]:
    """Read a JSON file that holds an object.

    Raises:
        UsageError: the file is missing, no JSON, or holds something else.
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: can't read it: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path}: can't read it: must hold an object")
    return content


def check_sizes(config: Dict[str, Any], tensors: Tensors) -> None:
    """Check the sizes in ``config.json``, and the word embeddings against them.

    Raises:
        UsageError: names the entry.
    """
    for name in _SIZES:
        if type(config.get(name)) is not int or config[name] < 1:
            raise UsageError(f"config.json: {name} must be a whole number above 0, got {config.get(name)}")
    base = base_name(config["model_type"] == "roberta-prelayernorm")
    words = tensors.get(f"{base}.embeddings.word_embeddings.weight")
    rows, width, heads = config["vocab_size"], config["hidden_size"], config["num_attention_heads"]
    if words is None or tuple(words.shape) != (rows, width):
        raise UsageError(
            f"config.json: vocab_size and hidden_size must be those of the word embeddings, got {rows} and {width} for "
            f"{'none' if words is None else list(words.shape)}"
        )
    if width % heads:
        raise UsageError(f"config.json: num_attention_heads must divide hidden_size, {width}, got {heads}")
