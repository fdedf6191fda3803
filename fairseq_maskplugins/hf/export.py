"""A fairseq checkpoint as the files of a folder that ``transformers`` loads (no fairseq here)."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ..correct_embeddings.checkpoint import RECORD as CORRECTED
from ..correct_embeddings.checkpoint import option_of
from ..errors import CheckpointError, UsageError
from .config import RECORD, check_representable, make_config
from .tokenizer import MASK, SPECIALS, Built, to_json
from .weights import HEADS, modernise, read_shape, to_hf

# what a head of sentence_prediction is called where nothing else is said
DEFAULT_HEAD = "sentence_classification_head"


class Exported(NamedTuple):
    """Files by name, and lines that say what was made."""

    files: Dict[str, bytes]
    lines: List[str]


def choose_head(heads: List[str], name: Optional[str], masked_lm: bool) -> Optional[str]:
    """The classification head to export; None: the masked-LM head.

    Raises:
        CheckpointError: the head asked for is not there, or there are several and none was asked for.
    """
    found = ", ".join(heads) or "none"
    if name is not None:
        if name not in heads:
            raise CheckpointError(f"has no head called {name} (--head); found {found}")
        return name
    if masked_lm or not heads:
        return None
    if len(heads) > 1:
        raise CheckpointError(f"has several heads, {found}: choose one with --head, or --masked-lm")
    return heads[0]


def check_symbols(symbols: List[str], rows: int) -> None:
    """A dictionary fits a model: as many entries as rows, specials first.

    Raises:
        UsageError: it does not.
    """
    if tuple(symbols[:4]) != SPECIALS:
        raise UsageError(f"dict.txt: must begin with {' '.join(SPECIALS)}, got {' '.join(symbols[:4])}")
    if len(symbols) != rows or MASK not in symbols:
        raise UsageError(f"dict.txt: has {len(symbols)} entries with {MASK}, the model has {rows} rows: it is not the model's")


def export_checkpoint(
    state: Dict[str, Any],
    symbols: List[str],
    built: Optional[Built],
    head: Optional[str] = None,
    masked_lm: bool = False,
    labels: Optional[List[str]] = None,
    asked: bool = False,
) -> Exported:
    """Convert a checkpoint.

    Args:
        state: the checkpoint.
        symbols: all entries of the dictionary in order, ``<mask>`` included.
        built: the tokenizer; None: the model only.
        head: classification head to export (default: the only one; if there is none, the masked-LM head).
        masked_lm: export the masked-LM head though there are others.
        labels: names of the classes; ``asked``: by the user, so that there must be as many as classes.
    """
    from safetensors.torch import save

    model = modernise(state["model"])
    shape = read_shape(model)
    check_symbols(symbols, shape.rows)
    head = choose_head(shape.heads, head, masked_lm)

    def option(name: str) -> Any:
        return option_of(state, "model", name)

    check_representable(option, shape, model, head)
    aliases = built.aliases if built else []
    tensors, tied = to_hf(model, shape, head, symbols.index("<unk>"), len(aliases))
    classes = 0 if head is None else model[f"{HEADS}{head}.out_proj.weight"].shape[0]
    if asked and head is None:
        raise UsageError("--labels names the classes of a head, and the masked-LM head is exported")
    if labels is not None and head is not None:
        if len(labels) < classes or len(set(labels[:classes])) < classes or asked and len(labels) > classes:
            raise UsageError(f"--labels must name {classes} classes, each once, got {len(set(labels))}")
        labels = labels[:classes]
    dtype = str(tensors[next(iter(tensors))].dtype).split(".")[-1]
    config = make_config(option, shape, shape.rows + len(aliases), tied, dtype, head, classes, labels)
    if isinstance(state.get(CORRECTED), dict):  # a second time would not be right after import-hf either
        config[RECORD][CORRECTED] = state[CORRECTED]
    files = {"config.json": to_json(config), "model.safetensors": save(tensors, metadata={"format": "pt"})}
    lines = [
        f"{config['architectures'][0]}: {shape.layers} layers of width {shape.width}, {shape.rows} entries, "
        + ("output projection " + ("tied" if tied else "of its own") if head is None else f"head {head}, {classes} classes")
    ]
    if aliases:
        lines.append(
            f"{len(aliases)} pieces of the tokenizer are not in the dictionary: rows after its own that equal <unk>, never "
            "predicted"
        )
    if built and built.unreachable:
        lines.append(f"{len(built.unreachable)} entries of the dictionary that no piece stands for become <unk> in new text")
    if shape.mae and head is None:
        lines.append("the MAE decoder is left out: the head was trained behind it, so predictions mean little before fine-tuning")
    return Exported({**files, **(built.files if built else {})}, lines)


def dictionary_file(symbols: List[str], counts: List[int]) -> bytes:
    """``dict.txt`` as fairseq writes it. Specials are implied; ``<mask>`` too where it comes last."""
    pairs: List[Tuple[str, int]] = list(zip(symbols, counts))[4:]
    if pairs and pairs[-1][0] == MASK:
        pairs.pop()
    return "".join(f"{symbol} {count}\n" for symbol, count in pairs).encode()
