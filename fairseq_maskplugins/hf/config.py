"""``config.json`` of a folder for ``transformers``, from a checkpoint's options and tensors (no fairseq here)."""

from typing import Any, Callable, Dict, List, Optional

from ..errors import CheckpointError
from .weights import HEADS, Shape, Tensors, base_name

RECORD = "fairseq_maskplugins"  # our own entry in config.json
# fairseq's names; in fairseq "gelu_fast" is the same as "gelu_accurate"
ACTIVATIONS = {"gelu": "gelu", "gelu_accurate": "gelu_new", "gelu_fast": "gelu_new", "relu": "relu"}
Option = Callable[[str], Any]


def _number(option: Option, name: str, default: Any = None) -> Any:
    value = option(name)
    if value is None and default is None:
        raise CheckpointError(f"does not record {name}, which its tensors don't say")
    return default if value is None else value


def _dropout(option: Option, name: str, default: float) -> float:
    value = _number(option, name, default)
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise CheckpointError(f"{name} must be a number in [0, 1], got {value!r:.60}")
    return float(value)


def check_representable(option: Option, shape: Shape, model: Tensors, head: Optional[str]) -> None:
    """Refuse, by name, what the models of ``transformers`` don't compute.

    Raises:
        CheckpointError: names the option, the rule and the value.
    """
    activation = option("activation_fn") or "gelu"
    if activation not in ACTIVATIONS:
        raise CheckpointError(f"activation_fn must be one of {', '.join(ACTIVATIONS)}, got {activation}")
    if head is None and activation != "gelu":
        raise CheckpointError(f"activation_fn must be gelu, got {activation}: the masked-LM head of transformers has no other")
    if option("no_scale_embedding") is False:
        raise CheckpointError("no_scale_embedding must be on, got False: transformers doesn't scale embeddings")
    if head is not None:
        pooler = option("pooler_activation_fn") or "tanh"
        if pooler != "tanh":
            raise CheckpointError(f"pooler_activation_fn must be tanh, got {pooler}: the heads of transformers have no other")
        inner = model[f"{HEADS}{head}.dense.weight"].shape[0]
        if inner != shape.width:
            raise CheckpointError(f"the inner width of head {head} must be the model's, {shape.width}, got {inner}")


def make_config(
    option: Option,
    shape: Shape,
    rows: int,
    tied: bool,
    dtype: str,
    head: Optional[str] = None,
    classes: int = 0,
    labels: Optional[List[str]] = None,
) -> Dict[str, Any]:
    """Make the content of ``config.json``.

    Args:
        option: gives an option of the checkpoint by name, or None.
        rows: entries of the vocabulary, aliases included.
        tied: whether the output projection is the embedding.
        head: name of the classification head; None: masked LM.
        classes: of the head; 1 is a regression.
    """
    kind = "RobertaPreLayerNorm" if shape.prenorm else "Roberta"
    attention_heads = _number(option, "encoder_attention_heads")
    if type(attention_heads) is not int or attention_heads < 1 or shape.width % attention_heads:
        raise CheckpointError(f"encoder_attention_heads must divide the width, {shape.width}, got {attention_heads!r:.60}")
    config = {
        "architectures": [kind + ("ForMaskedLM" if head is None else "ForSequenceClassification")],
        "model_type": base_name(shape.prenorm).replace("_", "-"),
        "vocab_size": rows,
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": attention_heads,
        "intermediate_size": shape.inner,
        "hidden_act": ACTIVATIONS[option("activation_fn") or "gelu"],
        "hidden_dropout_prob": _dropout(option, "dropout", 0.1),
        "attention_probs_dropout_prob": _dropout(option, "attention_dropout", 0.1),
        "classifier_dropout": _dropout(option, "pooler_dropout", 0.0),
        "max_position_embeddings": shape.positions,
        "position_embedding_type": "absolute",
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,  # of fairseq's LayerNorm
        "initializer_range": 0.02,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": tied,
        "torch_dtype": dtype,
        # import-hf needs it: the rows of fairseq's dictionary come first, those that were added follow
        RECORD: {"dictionary_rows": shape.rows, "head": head},
    }
    if head is not None:
        names = labels or [f"LABEL_{i}" for i in range(classes)]
        config["id2label"] = {str(i): name for i, name in enumerate(names)}
        config["label2id"] = {name: i for i, name in enumerate(names)}
        config["problem_type"] = "regression" if classes == 1 else "single_label_classification"
    return config
