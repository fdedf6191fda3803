"""Load a masked-LM checkpoint for the command-line tools: model, task, and MAP-Net's proposer if there is one."""

import os
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import torch
from fairseq import tasks, utils
from omegaconf import OmegaConf, open_dict

from .. import plugins  # noqa: F401
from ..checkpoints import read_upgraded_checkpoint
from ..errors import CheckpointError, UsageError, one_line


class Loaded(NamedTuple):
    model: torch.nn.Module
    task: Any
    criterion: Any
    has_proposer: bool


def load_masked_lm(
    path: str, data: str, overrides: Optional[Dict[str, Any]] = None, bpe: Optional[Dict[str, Any]] = None
) -> Loaded:
    """Load a checkpoint of ``--task decoupled_mlm``, in evaluation mode; a UsageError for another task's, or a damaged one.

    Args:
        overrides: task options that replace the checkpoint's, unless None.
        bpe: configuration of the tokenizer; None for the checkpoint's.
    """
    state = read_upgraded_checkpoint(path)
    cfg, name = state.get("cfg"), _task_name(state)
    if name != "decoupled_mlm":
        raise UsageError(f"{path}: must be a checkpoint of --task decoupled_mlm, it is one of {name or 'an older fairseq'}")
    with open_dict(cfg):
        cfg.task.data = data
        cfg.task.update({key: value for key, value in (overrides or {}).items() if value is not None})
        if bpe is not None:
            cfg.bpe = OmegaConf.create(bpe)
            cfg.task.bpe_config = cfg.bpe
        cfg.distributed_training.ddp_backend = "legacy_ddp"  # tools run in one process
        if "ddp_backend" in cfg.criterion:
            cfg.criterion.ddp_backend = "legacy_ddp"
    with building(path):
        task = tasks.setup_task(cfg.task)
        check_dictionary_size(path, state, task, data)
        model = task.build_model(cfg.model)
        criterion = task.build_criterion(cfg.criterion)
        model.load_state_dict(state["model"], strict=True, model_cfg=cfg.model)
        if state.get("criterion") is not None:
            criterion.load_state_dict(state["criterion"])
    for module in model.modules():
        if hasattr(module, "ever_training"):
            module.ever_training = True  # fairseq 0.12.2 has a fused inference path, with weights of its own
    has_proposer = hasattr(criterion, "proposer") and state.get("criterion") is not None
    return Loaded(model.eval(), task, criterion.eval(), has_proposer)


def _task_name(state: Dict[str, Any]) -> Optional[str]:
    """Return the name of the checkpoint's task; None if an older fairseq wrote it."""
    cfg = state.get("cfg")
    return getattr(cfg.get("task"), "_name", None) if OmegaConf.is_dict(cfg) else None


def first_directory(data: str) -> str:
    """Return the first of several data directories joined by ``":"``; its dictionary counts."""
    return data if os.path.isdir(data) else utils.split_paths(data)[0]


def load_data_sets(task: Any, data: str, split: str) -> List[Any]:
    """Load a split's data sets: for training, one per data directory."""
    shards = utils.split_paths(data) if split.startswith("train") and not os.path.isdir(data) else [data]
    datasets = []
    for epoch in range(1, len(shards) + 1):
        task.load_dataset(split, combine=split.startswith("train"), epoch=epoch)
        datasets.append(task.dataset(split))
        if epoch > 1:
            datasets[-1].set_epoch(epoch)
    return datasets


def require_pretraining(path: str, state: Dict[str, Any]) -> None:
    """Refuse a checkpoint of fine-tuning."""
    name = _task_name(state)
    if str(name).startswith("sentence_"):
        raise UsageError(f"{path}: must be a checkpoint of a masked language model, it is one of --task {name}")


def check_dictionary_size(path: str, state: Dict[str, Any], task: Any, data: str) -> None:
    """Require as many dictionary entries as token embeddings."""
    tables = [t for name, t in state["model"].items() if name.endswith("embed_tokens.weight") and t.dim() == 2]
    dictionary = task.source_dictionary
    if len(tables) == 1 and dictionary is not None and len(dictionary) != len(tables[0]):
        raise UsageError(
            f"{os.path.join(first_directory(data), 'dict.txt')}: has {len(dictionary)} entries with <mask>, the model in "
            f"{path} has {len(tables[0])} rows: it is not the model's"
        )


@contextmanager
def building(path: str) -> Iterator[None]:
    """Report in one line that a checkpoint's options and weights do not fit together."""
    try:
        yield
    except CheckpointError as error:
        raise error.at(path) from None
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{path}: does not fit its own options: {one_line(error, 300) or type(error).__name__}") from None


def require_proposer(loaded: Loaded, path: str, option: str) -> Any:
    """Return MAP-Net's criterion; a UsageError if the checkpoint has no proposer."""
    if not loaded.has_proposer:
        lost = hasattr(loaded.criterion, "proposer")
        why = "has lost the criterion's parameters" if lost else "was not trained with --criterion mapnet"
        raise UsageError(f"{option}: {path} has no MAP-Net proposer, it {why}")
    return loaded.criterion
