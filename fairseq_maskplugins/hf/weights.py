"""Names of tensors: fairseq's RoBERTa, and RoBERTa and RobertaPreLayerNorm of ``transformers`` (torch, no fairseq)."""

import re
from typing import Dict, List, NamedTuple, Optional, Tuple

import torch

from ..compat import is_inference_copy
from ..errors import CheckpointError

Tensors = Dict[str, torch.Tensor]
ENCODER = "encoder.sentence_encoder."
EMBED, POSITIONS = ENCODER + "embed_tokens.weight", ENCODER + "embed_positions.weight"
HEAD_WEIGHT, HEAD_BIAS = "encoder.lm_head.weight", "encoder.lm_head.bias"
HEADS = "classification_heads."
# never predicted, and still a number in half precision
NEVER = -1e4

_LAYER = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
}
_NORMS = {  # by whether the norms stand before the blocks
    False: {"self_attn_layer_norm": "attention.output.LayerNorm", "final_layer_norm": "output.LayerNorm"},
    True: {"self_attn_layer_norm": "attention.LayerNorm", "final_layer_norm": "intermediate.LayerNorm"},
}
_LM = {"dense": "dense", "layer_norm": "layer_norm"}
_LEFT_OUT = ("encoder.regression_head.", "mae_decoder.", ENCODER + "version", ENCODER + "embed_positions._float_tensor")


class Shape(NamedTuple):
    """What the tensors say of a model."""

    layers: int
    prenorm: bool
    rows: int
    width: int
    inner: int
    positions: int  # rows of the position table: two more than the longest row has tokens, with padding at 1
    heads: List[str]  # names of classification heads
    mae: bool


def modernise(model: Tensors) -> Tensors:
    """The tensors under today's names: published RoBERTas have those of 2019, and q, k and v in one."""
    new: Tensors = {}
    for name, tensor in model.items():
        if name.startswith("decoder."):
            name = "encoder." + name[len("decoder.") :]
        name = name.replace(".emb_layer_norm.", ".layernorm_embedding.")
        merged = re.match(r"(.*\.self_attn\.)in_proj_(weight|bias)$", name)
        if merged:
            for part, piece in zip("qkv", tensor.chunk(3)):
                new[f"{merged[1]}{part}_proj.{merged[2]}"] = piece.clone()
        elif not is_inference_copy(name):
            new[name] = tensor
    return new


def read_shape(model: Tensors) -> Shape:
    """Sizes of a model, from the tensors of :func:`modernise`.

    Raises:
        CheckpointError: it is no RoBERTa, or one that ``transformers`` has no place for.
    """
    for name in (EMBED, POSITIONS):
        if name not in model:
            raise CheckpointError(f"must hold {name}: a RoBERTa with learned positions")
    if ENCODER + "layernorm_embedding.weight" not in model:
        raise CheckpointError(
            "has no layer norm after its embeddings (--arch roberta_prenorm); transformers' RobertaPreLayerNorm always has "
            "one: train with --arch roberta_base --encoder-normalize-before"
        )
    numbers = [int(found[1]) for found in (re.match(re.escape(ENCODER) + r"layers\.(\d+)\.", k) for k in model) if found]
    layers = max(numbers, default=-1) + 1
    if sorted(set(numbers)) != list(range(layers)) or not layers:
        raise CheckpointError(f"must hold layers numbered from 0 without a gap, found {sorted(set(numbers))}")
    return Shape(
        layers=layers,
        prenorm=ENCODER + "layer_norm.weight" in model,
        rows=model[EMBED].shape[0],
        width=model[EMBED].shape[1],
        inner=model[ENCODER + "layers.0.fc1.weight"].shape[0],
        positions=model[POSITIONS].shape[0],
        heads=sorted({name.split(".")[1] for name in model if name.startswith(HEADS)}),
        mae=any(name.startswith(_LEFT_OUT[:2]) for name in model),
    )


def base_name(prenorm: bool) -> str:
    return "roberta_prelayernorm" if prenorm else "roberta"


def name_pairs(layers: int, prenorm: bool, head: Optional[str], lm: bool, final: bool = True) -> List[Tuple[str, str]]:
    """Pairs of names, fairseq's and that of ``transformers``, of all tensors that carry over as they are.

    Args:
        head: name of the classification head, or None.
        lm: with the layers of the masked-LM head that are not tied.
    """
    base = base_name(prenorm) + "."
    pairs = [(EMBED, base + "embeddings.word_embeddings.weight")]
    pairs.append((POSITIONS, base + "embeddings.position_embeddings.weight"))
    modules = [(ENCODER + "layernorm_embedding", base + "embeddings.LayerNorm")]
    for layer in range(layers):
        for ours, theirs in {**_LAYER, **_NORMS[prenorm]}.items():
            modules.append((f"{ENCODER}layers.{layer}.{ours}", f"{base}encoder.layer.{layer}.{theirs}"))
    if prenorm:
        modules.append((ENCODER + "layer_norm", base + "LayerNorm"))
    if lm:
        modules += [(f"encoder.lm_head.{ours}", f"lm_head.{theirs}") for ours, theirs in _LM.items()]
        pairs.append((HEAD_BIAS, "lm_head.bias"))
    if head is not None:
        modules += [(f"{HEADS}{head}.{part}", f"classifier.{part}") for part in ("dense", "out_proj")]
    return pairs + [(f"{a}.{kind}", f"{b}.{kind}") for a, b in modules for kind in ("weight", "bias")]


def to_hf(model: Tensors, shape: Shape, head: Optional[str], unk: int = 3, aliases: int = 0) -> Tuple[Tensors, bool]:
    """Tensors for ``transformers``, and whether the output projection is tied to the embedding.

    Args:
        model: of :func:`modernise`.
        head: name of the classification head to keep; None: the masked-LM head.
        unk: row of ``<unk>``.
        aliases: number of rows to add that are ``<unk>`` to the layers, and never predicted.
    """
    pairs = name_pairs(shape.layers, shape.prenorm, head, lm=head is None)
    missing = sorted(name for name, _ in pairs if name not in model)
    if missing or (head is None and HEAD_WEIGHT not in model):
        raise CheckpointError(f"holds no {(missing or [HEAD_WEIGHT])[0]}")
    known = {name for name, _ in pairs} | {HEAD_WEIGHT}
    left = (*_LEFT_OUT, HEADS, *(() if head is None else ("encoder.lm_head.",)))
    extra = sorted(name for name in model if name not in known and not name.startswith(left))
    if head is not None:
        extra += sorted(n for n in model if n.startswith(f"{HEADS}{head}.") and n not in known)
    if extra:
        raise CheckpointError(f"holds {extra[0]}, for which transformers' RoBERTa has no place")
    new = {theirs: model[ours].contiguous() for ours, theirs in pairs}
    words = base_name(shape.prenorm) + ".embeddings.word_embeddings.weight"
    types = words.replace("word_", "token_type_")
    new[types] = torch.zeros(1, shape.width, dtype=model[EMBED].dtype)
    new[words] = _extend(new[words], model[EMBED][unk], aliases)
    if head is not None:
        return new, True
    tied = torch.equal(model[HEAD_WEIGHT], model[EMBED])
    new["lm_head.bias"] = _extend(new["lm_head.bias"], torch.tensor(NEVER), aliases)
    if not tied:
        new["lm_head.decoder.weight"] = _extend(model[HEAD_WEIGHT], torch.zeros(shape.width), aliases)
        new["lm_head.decoder.bias"] = new["lm_head.bias"].clone()
    return new, tied


def _extend(tensor: torch.Tensor, row: torch.Tensor, count: int) -> torch.Tensor:
    return torch.cat([tensor, row.to(tensor.dtype).expand(count, *tensor.shape[1:])]) if count else tensor.contiguous()
