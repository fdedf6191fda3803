"""Correct the embeddings inside a fairseq checkpoint (its plain dictionary; torch, no fairseq)."""

from collections.abc import Mapping
from typing import Any, Dict, List, NamedTuple, Optional

import torch

from ..errors import CheckpointError, UsageError
from .correct import ReplacementRates, correct, read_shares

RECORD = "correct_embeddings"
EMBEDDING = "embed_tokens.weight"
HEADS = ("lm_head.weight", "output_projection.weight", "embed_out.weight")
SPECIALS = 4  # <s>, padding, </s> and <unk> lead every fairseq dictionary


class Report(NamedTuple):
    """How many rows were corrected, their mean norm before and after, and what became of the output projection."""

    rows: int
    total: int
    before: float
    after: float
    head: str


def _group(state: Dict[str, Any], name: str) -> Any:
    cfg = state.get("cfg")
    return cfg.get(name) if isinstance(cfg, Mapping) else None


def option_of(state: Dict[str, Any], group: str, name: str) -> Any:
    """An option of a checkpoint, old (one ``args`` namespace) or new (``cfg`` with groups), or None."""
    found = _group(state, group)
    if found is None:
        found = state.get("args")
    return found.get(name) if hasattr(found, "get") else getattr(found, name, None)


def _last_update(state: Dict[str, Any]) -> Optional[int]:
    """The updates that were made; None where it does not say, as checkpoints that were stripped don't."""
    history = state.get("optimizer_history")
    last = history[-1] if isinstance(history, list) and history else None
    found = last.get("num_updates") if isinstance(last, dict) else None
    return found if type(found) is int and found >= 0 else None


def shares_of(state: Dict[str, Any]) -> Optional[ReplacementRates]:
    """The rates of pretraining at the checkpoint's update number; None where it does not say."""
    update, max_update = _last_update(state), option_of(state, "optimization", "max_update")

    def read(number: int) -> Optional[ReplacementRates]:
        return read_shares(lambda name: option_of(state, "task", name), number, max_update)

    advice = "give --mask-prob, --random-token-prob and --leave-unmasked-prob"
    try:
        if update is None and read(0) != read(2**62):
            raise CheckpointError(f"it does not say after how many updates its rates were to be read: {advice}")
        return read(update or 0)
    except CheckpointError:
        raise
    except UsageError as error:
        raise CheckpointError(f"the rates it records can't be read ({error.message}): {advice}") from error


def _find(names: List[str], what: str) -> str:
    if len(names) != 1:
        raise CheckpointError(f"must hold one {what}, found {', '.join(sorted(names)) or 'none'}")
    return names[0]


def find_embedding(model: Dict[str, torch.Tensor]) -> str:
    """The name of the token embedding among a checkpoint's tensors."""
    return _find([name for name in model if name.endswith("encoder." + EMBEDDING)], EMBEDDING)


def choose_rows(total: int, mask: int, pad: int = 1, include_specials: bool = False, include_mask: bool = False) -> torch.Tensor:
    """The rows to correct: never padding; specials and ``<mask>`` where asked for. *Shape:* bool ``[total]``."""
    for name, row in (("--mask-index", mask), ("--pad-index", pad)):
        if not 0 <= row < total:
            raise UsageError(f"{name} must be a row of the embedding, 0 to {total - 1}, got {row}")
    if mask == pad:
        raise UsageError(f"--mask-index must be another row than padding's, got {mask}")
    rows = torch.ones(total, dtype=torch.bool)
    rows[:SPECIALS] = include_specials
    rows[mask] = include_mask
    rows[pad] = False
    return rows


def correct_checkpoint(
    state: Dict[str, Any], shares: ReplacementRates, mask: int, rows: torch.Tensor, pad: int = 1, head: str = "follow"
) -> Report:
    """Correct a checkpoint in place.

    Args:
        state: from ``torch.load``.
        shares: the rates of pretraining.
        rows: bool ``[V]``, the rows to correct; ``mask`` and ``pad`` are rows too.
        head: treatment of a tied output projection: ``"follow"``: it stays tied and is corrected; ``"untie"``: it keeps the old
            embedding, so that predictions are unchanged, and the model is marked as untied.

    Raises:
        CheckpointError: the embeddings are corrected already, can't be found or untied, or are not floating-point numbers.
    """
    if RECORD in state:
        raise CheckpointError("its embeddings are corrected already; a second time would not be right")
    model = state["model"]
    if any(key.startswith(("encoder.regression_head.", "mae_decoder.")) for key in model):
        raise CheckpointError("was trained as MAE: its layers never saw <mask>, so there is nothing to correct")
    name = find_embedding(model)
    old = model[name]
    if not old.is_floating_point():
        raise CheckpointError(f"{name} must hold floating-point numbers, got {str(old.dtype).replace('torch.', '')}")
    new = correct(old, mask, shares, rows)
    if torch.equal(new, old):
        norm = _mean_norm(old, rows)
        return Report(0, len(rows), norm, norm, "unchanged, as nothing else in the checkpoint: no embedding moves")
    outputs = [key for key in model if key.endswith(HEADS) and model[key].shape == old.shape]
    tied = [key for key in outputs if torch.equal(model[key], old)]
    if head == "follow":
        model.update({key: new for key in tied})
        said = "tied, corrected with the embedding" if tied else "untied before, unchanged"
    elif tied:
        model.update({key: old.clone() for key in tied})
        _mark_untied(state)
        said = "untied: it keeps the uncorrected embedding"
    elif outputs:
        said = "untied before, unchanged"
    else:
        raise CheckpointError("has no output projection of its own to untie: --head follow corrects both")
    model[name] = new
    # its state belongs to the parameters of before
    state.pop("last_optimizer_state", None)
    state[RECORD] = {**shares._asdict(), "mask_index": mask, "pad_index": pad, "head": head}
    return Report(int(rows.sum()), len(rows), _mean_norm(old, rows), _mean_norm(new, rows), said)


def _mean_norm(weight: torch.Tensor, rows: torch.Tensor) -> float:
    return weight[rows].float().norm(dim=1).mean().item() if rows.any() else 0.0


def _mark_untied(state: Dict[str, Any]) -> None:
    for holder in (_group(state, "model"), state.get("args")):
        if isinstance(holder, dict):
            holder["untie_weights_roberta"] = True
        elif holder is not None:
            holder.untie_weights_roberta = True
