"""A RoBERTa of ``transformers`` as a fairseq checkpoint and dictionary (no fairseq here)."""

import argparse
import io
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch

from ..correct_embeddings.checkpoint import RECORD as CORRECTED
from ..errors import UsageError, one_line
from ..pieces import byte_alphabet
from .config import ACTIVATIONS, RECORD
from .export import DEFAULT_HEAD
from .folder import LEFT_OUT
from .tokenizer import MASK, SPECIALS
from .weights import EMBED, ENCODER, HEAD_BIAS, HEAD_WEIGHT, HEADS, POSITIONS, Tensors, base_name, name_pairs


class Imported(NamedTuple):
    """The content of ``model.pt``, and lines that say what was made."""

    checkpoint: bytes
    lines: List[str]


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
    if len(set(symbols)) < len(symbols) or set(symbols) & {*SPECIALS, MASK} or any(not s or s.isspace() for s in symbols):
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
    """Convert the tensors; ``order`` has the row of each entry. Refuse, by entry or tensor, models that fairseq's RoBERTa
    does not compute."""
    try:
        return _convert(config, tensors, order, head)
    except UsageError:
        raise
    except Exception as error:  # shapes that don't fit together, entries of other types
        reason = one_line(error, 200)
        raise UsageError(f"model.safetensors: does not fit config.json: {type(error).__name__}: {reason}") from None


def _convert(config: Dict[str, Any], tensors: Tensors, order: Optional[List[int]], head: Optional[str]) -> Imported:
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
    if head and not classifier:
        raise UsageError(f"--head {head} names a classification head, and this model has none")
    record = config.get(RECORD) or {}
    head = (head or record.get("head") or DEFAULT_HEAD) if classifier else None
    if head is not None and "." in head:
        raise UsageError(f"--head must be a name without dots, got {head!r}")
    pairs = name_pairs(int(config["num_hidden_layers"]), prenorm, head, lm)
    missing = [theirs for _, theirs in pairs if theirs not in tensors]
    if missing:
        raise UsageError(f"model.safetensors: holds no {missing[0]}")
    types, untied = f"{base}embeddings.token_type_embeddings.weight", "lm_head.decoder.weight"
    known = {theirs for _, theirs in pairs} | {types, untied}
    extra = [n for n in tensors if n not in known and not n.endswith(LEFT_OUT) and not n.startswith(base + "pooler.")]
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
    summary = f"RoBERTa of {len(rows)} entries, {said}: fine-tune with {arch} and its sizes"
    return Imported(_pack(options, model, record.get(CORRECTED)), [summary, *lines])


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


def _pack(options: argparse.Namespace, model: Tensors, corrected: Optional[Dict[str, Any]]) -> bytes:
    history = dict(criterion_name="MaskedLmLoss", optimizer_name="FairseqAdam", lr_scheduler_state={}, num_updates=0)
    state = {
        "args": options,
        "cfg": None,
        "model": model,
        "optimizer_history": [history],
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
        "last_optimizer_state": None,
    }
    if corrected is not None:
        state[CORRECTED] = corrected
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()
