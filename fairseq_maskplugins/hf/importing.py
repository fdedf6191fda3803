"""A RoBERTa of ``transformers`` as a fairseq checkpoint and dictionary (no fairseq here)."""

import argparse
import io
import json
import os
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch

from ..errors import UsageError
from ..files import require_file
from ..pieces import byte_alphabet
from .config import ACTIVATIONS, RECORD
from .export import DEFAULT_HEAD
from .tokenizer import MASK, SPECIALS
from .weights import EMBED, ENCODER, HEAD_BIAS, HEAD_WEIGHT, HEADS, POSITIONS, Tensors, base_name, name_pairs

KINDS = ("roberta", "roberta-prelayernorm", "xlm-roberta", "camembert")
# what masked-LM and classification models may hold besides, and fairseq has no use for
_LEFT_OUT = (".position_ids", ".embeddings.token_type_ids", "lm_head.decoder.bias")


class Imported(NamedTuple):
    """The content of ``model.pt``, and lines that say what was made."""

    checkpoint: bytes
    lines: List[str]


def read_folder(path: str) -> Tuple[Dict[str, Any], Tensors]:
    """``config.json`` and the tensors of a folder.

    Raises:
        UsageError: a file is missing or can't be read, or it is another kind of model.
    """
    from safetensors.torch import load_file

    for entry in sorted(os.listdir(path)) if os.path.isdir(path) else ():  # transformers opens more of them than we
        require_file(os.path.join(path, entry))
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
        if not tensor.is_floating_point() and not name.endswith(_LEFT_OUT):
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
    except RecursionError:
        raise UsageError(f"{path}: can't read it: nested too deep") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: can't read it: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path}: can't read it: must hold an object")
    return found


# entries of config.json and what they must lie in; the tensors say the same
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


# rows that a table has at least; of positions two stand before the first
_TABLES = {
    ".embeddings.position_embeddings.weight": 3,
    ".embeddings.token_type_embeddings.weight": 1,
    "classifier.out_proj.weight": 1,
}


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
    width, inner = config["hidden_size"], config["intermediate_size"]
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
    for name, tensor in tensors.items():
        shape = _shape_of(name, width, inner, config["vocab_size"])
        if shape is not None and tuple(tensor.shape) != shape:
            raise UsageError(f"model.safetensors: {name} must have the shape {list(shape)}, got {list(tensor.shape)}")
        least = next((rows for end, rows in _TABLES.items() if name.endswith(end)), None)
        if least is not None and (tensor.dim() != 2 or tensor.shape[0] < least or tensor.shape[1] != width):
            raise UsageError(
                f"model.safetensors: {name} must have {least} rows or more of width {width}, got the shape "
                f"{list(tensor.shape)}"
            )
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        value = config.get(name, 0.1)
        if not isinstance(value, (int, float)) or not 0 <= value < 1:
            raise UsageError(f"config.json: {name} must lie in [0, 1), got {value}")
    record = config.get(RECORD, {})
    rows, head = (record.get("dictionary_rows", 1), record.get("head")) if isinstance(record, dict) else (None, None)
    if type(rows) is not int or not 0 < rows <= config["vocab_size"] or not isinstance(head, (str, type(None))):
        raise UsageError(
            f"config.json: {RECORD} must name the rows of the dictionary, at most vocab_size, and the head, got {record}"
        )


def _shape_of(name: str, width: int, inner: int, rows: int) -> Optional[Tuple[int, ...]]:
    """The shape of a tensor by its name, None where it is free."""
    kind = name.rsplit(".", 1)[-1]
    if name in ("lm_head.bias", "lm_head.decoder.bias"):
        return (rows,)
    if name.startswith("lm_head.decoder."):
        return (rows, width)
    if ".intermediate.dense." in name:
        return (inner, width) if kind == "weight" else (inner,)
    if ".output.dense." in name and ".attention." not in name:
        return (width, inner) if kind == "weight" else (width,)
    if "LayerNorm" in name or "layer_norm" in name:
        return (width,)
    if ".attention." in name or name.startswith(("lm_head.dense.", "classifier.dense.")):
        return (width, width) if kind == "weight" else (width,)
    return None


def plan_dictionary(vocab: Dict[str, int], rows: int, specials: Dict[str, str]) -> Tuple[List[str], List[int]]:
    """Entries of a fairseq dictionary, and the row of each: specials first, ``<mask>`` last, others in their order.

    Args:
        vocab: row by token.
        rows: of the model; rows without a token become padding words.
        specials: what the tokenizer calls each of :data:`SPECIALS` and ``<mask>``.
    """
    by_row: Dict[int, str] = {row: token for token, row in vocab.items() if row < rows}
    found = []
    for name in (*SPECIALS, MASK):
        row = vocab.get(specials.get(name) or "")
        if row is None or row >= rows:
            raise UsageError(f"the tokenizer must have a token for {name}")
        found.append(row)
    if len(set(found)) < len(found):
        raise UsageError("the tokenizer's special tokens must be five different ones")
    others = [row for row in range(rows) if row not in found]
    symbols = [by_row.get(row, f"madeupword{row:04d}") for row in others]
    if (
        len(set(symbols)) < len(symbols)
        or set(symbols) & {*SPECIALS, MASK}
        or any(not s or s.isspace() for s in symbols)
    ):
        raise UsageError(
            "the tokenizer's tokens can't be a dictionary: they must differ from each other and from fairseq's specials"
        )
    return [*SPECIALS, *symbols, MASK], [*found[:4], *others, found[4]]


def number_gpt2(merges: List[Tuple[str, str]]) -> Dict[str, int]:
    """GPT-2's own ids, which fairseq's dictionary is written in: the 256 bytes in the order of their characters' table,
    then the merges."""
    tokens = [*byte_alphabet(), *(a + b for a, b in merges), "<|endoftext|>"]
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


def import_model(config: Dict[str, Any], tensors: Tensors, order: Optional[List[int]], head: Optional[str]) -> Imported:
    """Convert the tensors.

    Args:
        config: of ``config.json``.
        order: the row of each entry of the dictionary.
        head: what to call a classification head.

    Raises:
        UsageError: fairseq's RoBERTa does not compute this; names the entry or tensor.
    """
    prenorm = config["model_type"] == "roberta-prelayernorm"
    activations = {theirs: ours for ours, theirs in ACTIVATIONS.items() if ours != "gelu_fast"}
    for name, allowed in (
        ("hidden_act", tuple(activations)),
        ("position_embedding_type", ("absolute", None)),
        ("pad_token_id", (1,)),
        ("layer_norm_eps", (1e-5,)),
    ):
        if config.get(name) not in allowed:
            raise UsageError(f"config.json: {name} must be {' or '.join(map(str, allowed))}, got {config.get(name)}")
    base = base_name(prenorm) + "."
    classifier = any(name.startswith("classifier.") for name in tensors)
    lm = "lm_head.bias" in tensors
    head = (head or (config.get(RECORD) or {}).get("head") or DEFAULT_HEAD) if classifier else None
    pairs = name_pairs(int(config["num_hidden_layers"]), prenorm, head, lm)
    missing = [theirs for _, theirs in pairs if theirs not in tensors]
    if missing:
        raise UsageError(f"model.safetensors: holds no {missing[0]}")
    types, untied = f"{base}embeddings.token_type_embeddings.weight", "lm_head.decoder.weight"
    known = {theirs for _, theirs in pairs} | {types, untied}
    extra = [n for n in tensors if n not in known and not n.endswith(_LEFT_OUT) and not n.startswith(base + "pooler.")]
    if extra:
        raise UsageError(f"model.safetensors: holds {sorted(extra)[0]}, for which fairseq's RoBERTa has no place")
    model = {ours: tensors[theirs] for ours, theirs in pairs}
    if types in tensors and tensors[types].any():  # added to every token: as good in the table of positions
        model[POSITIONS] = torch.cat([model[POSITIONS][:2], model[POSITIONS][2:] + tensors[types][0]])
    head_weight = tensors[untied] if untied in tensors and not config.get("tie_word_embeddings", True) else model[EMBED]
    rows = torch.arange(len(model[EMBED])) if order is None else torch.tensor(order)
    lines = []
    if lm:
        model[HEAD_BIAS] = model[HEAD_BIAS][rows].contiguous()
    else:
        lines.append("there is no masked-LM head: one that changes nothing stands in its place")
        model.update(_plain_head(model[EMBED], len(rows)))
    model[HEAD_WEIGHT] = head_weight[rows].clone()
    model[EMBED] = model[EMBED][rows].contiguous()
    model[ENCODER + "version"] = torch.tensor([3.0])  # without it fairseq takes the names for older ones
    options = _options(config, model, prenorm, activations, untied=not torch.equal(model[HEAD_WEIGHT], model[EMBED]))
    said = f"head {head}, {model[f'{HEADS}{head}.out_proj.weight'].shape[0]} classes" if head else "masked LM"
    arch = "--arch roberta_base" + (" --encoder-normalize-before" if prenorm else "")
    return Imported(
        _pack(options, model), [f"RoBERTa of {len(rows)} entries, {said}: fine-tune with {arch} and its sizes", *lines]
    )


def _plain_head(embedding: torch.Tensor, rows: int) -> Tensors:
    width, like = embedding.shape[1], dict(dtype=embedding.dtype)
    lm = "encoder.lm_head."
    return {
        lm + "dense.weight": torch.eye(width, **like),
        lm + "dense.bias": torch.zeros(width, **like),
        lm + "layer_norm.weight": torch.ones(width, **like),
        lm + "layer_norm.bias": torch.zeros(width, **like),
        HEAD_BIAS: torch.zeros(rows, **like),
    }


def _options(config: Dict[str, Any], model: Tensors, prenorm: bool, activations: Dict[str, str], untied: bool) -> Any:
    return argparse.Namespace(
        arch="roberta_base",
        task="masked_lm",
        criterion="masked_lm",
        data="",
        encoder_layers=int(config["num_hidden_layers"]),
        encoder_embed_dim=int(config["hidden_size"]),
        encoder_ffn_embed_dim=int(config["intermediate_size"]),
        encoder_attention_heads=int(config["num_attention_heads"]),
        activation_fn=activations[config["hidden_act"]],
        dropout=float(config.get("hidden_dropout_prob", 0.1)),
        attention_dropout=float(config.get("attention_probs_dropout_prob", 0.1)),
        encoder_normalize_before=prenorm,
        untie_weights_roberta=untied,
        max_positions=len(model[POSITIONS]) - 2,
        tokens_per_sample=len(model[POSITIONS]) - 2,
    )


def _pack(options: argparse.Namespace, model: Tensors) -> bytes:
    history = dict(criterion_name="MaskedLmLoss", optimizer_name="FairseqAdam", lr_scheduler_state={}, num_updates=0)
    state = {
        "args": options,
        "cfg": None,
        "model": model,
        "optimizer_history": [history],
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
        "last_optimizer_state": None,
    }
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()
