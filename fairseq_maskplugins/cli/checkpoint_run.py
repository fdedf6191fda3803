"""What tools load of a masked-LM run: its model, task and, if it had one, MAP-Net's proposer."""

from typing import Any, Dict, NamedTuple, Optional

import torch
from omegaconf import OmegaConf, open_dict

from ..errors import UsageError
from .checkpoint_file import load_upgraded_checkpoint


class Loaded(NamedTuple):
    model: torch.nn.Module
    task: Any
    criterion: Any
    has_proposer: bool


def load_run(
    path: str, data: str, overrides: Optional[Dict[str, Any]] = None, bpe: Optional[Dict[str, Any]] = None
) -> Loaded:
    """Load a checkpoint of ``--task decoupled_mlm``, in evaluation mode.

    Args:
        path: the checkpoint.
        data: data directory.
        overrides: of the task's options, those that are not None count.
        bpe: configuration of the tokenizer; None: the checkpoint's.

    Raises:
        UsageError: another task's checkpoint, or one that can't be read.
    """
    state = load_upgraded_checkpoint(path)
    cfg = state.get("cfg")
    name = getattr(cfg.task, "_name", None) if cfg is not None else None
    if name != "decoupled_mlm":
        raise UsageError(
            f"{path}: must be a checkpoint of --task decoupled_mlm, it is one of {name or 'an older fairseq'}"
        )
    with open_dict(cfg):
        cfg.task.data = data
        for key, value in (overrides or {}).items():
            if value is not None:
                cfg.task[key] = value
        if bpe is not None:
            cfg.bpe = OmegaConf.create(bpe)
            cfg.task.bpe_config = cfg.bpe
        # a tool runs in one process, whatever the training ran in
        cfg.distributed_training.ddp_backend = "legacy_ddp"
        if "ddp_backend" in cfg.criterion:
            cfg.criterion.ddp_backend = "legacy_ddp"
    from fairseq import tasks

    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    criterion = task.build_criterion(cfg.criterion)
    try:
        model.load_state_dict(state["model"], strict=True, model_cfg=cfg.model)
        if state.get("criterion") is not None:
            criterion.load_state_dict(state["criterion"])
    except (RuntimeError, KeyError) as error:
        raise UsageError(f"{path}: does not fit its own settings: {' '.join(str(error).split())[:300]}") from None
    for module in model.modules():
        if hasattr(module, "ever_training"):
            module.ever_training = True  # fairseq 0.12.2 has a fast path, for inference, with weights of its own
    has_proposer = hasattr(criterion, "proposer") and state.get("criterion") is not None
    return Loaded(model.eval(), task, criterion.eval(), has_proposer)


def require_proposer(loaded: Loaded, path: str, option: str) -> Any:
    """The criterion, where it is MAP-Net's."""
    if not loaded.has_proposer:
        why = "was not trained with --criterion mapnet"
        if hasattr(loaded.criterion, "proposer"):
            why = "lost what its criterion had learned"
        raise UsageError(f"{option}: {path} has no MAP-Net proposer, it {why}")
    return loaded.criterion
