"""What tools load of a masked-LM run: its model, task and, if it had one, MAP-Net's proposer."""

import os
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import torch
from fairseq import utils
from fairseq.modules import SinusoidalPositionalEmbedding
from omegaconf import OmegaConf, open_dict

from ..compat import storage_of
from ..errors import CheckpointError, UsageError
from .checkpoint_file import load_upgraded_checkpoint

SLACK = 1 << 22  # entries that a model may have and its checkpoint not
EACH = 1024  # more for each parameter: a billion of one entry take time and memory too


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
    cfg, name = state.get("cfg"), _task_name(state)
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

    with building(path, state):
        task = tasks.setup_task(cfg.task)
        check_rows(path, state, task, data)
        model = task.build_model(cfg.model)
        criterion = task.build_criterion(cfg.criterion)
        model.load_state_dict(state["model"], strict=True, model_cfg=cfg.model)
        if state.get("criterion") is not None:
            criterion.load_state_dict(state["criterion"])
    for module in model.modules():
        if hasattr(module, "ever_training"):
            module.ever_training = True  # fairseq 0.12.2 has a fast path, for inference, with weights of its own
    has_proposer = hasattr(criterion, "proposer") and state.get("criterion") is not None
    return Loaded(model.eval(), task, criterion.eval(), has_proposer)


def _task_name(state: Dict[str, Any]) -> Optional[str]:
    """The task that a checkpoint was trained with; None where an older fairseq wrote it."""
    cfg = state.get("cfg")
    return getattr(cfg.get("task"), "_name", None) if OmegaConf.is_dict(cfg) else None


def first_directory(data: str) -> str:
    """Of several directories joined by ``":"`` the one whose dictionary counts."""
    return data if os.path.isdir(data) else utils.split_paths(data)[0]


def load_data_sets(task: Any, data: str, split: str) -> List[Any]:
    """The data sets that a split's epochs go through: of training one for each of the data directories, as fairseq has it."""
    shards = utils.split_paths(data) if split.startswith("train") and not os.path.isdir(data) else [data]
    found = []
    for epoch in range(1, len(shards) + 1):
        task.load_dataset(split, combine=split.startswith("train"), epoch=epoch)
        found.append(task.dataset(split))
        if epoch > 1:
            found[-1].set_epoch(epoch)
    return found


def require_pretraining(path: str, state: Dict[str, Any]) -> None:
    """Stop where a checkpoint is one of fine-tuning: its data and its task are others."""
    name = _task_name(state)
    if str(name).startswith("sentence_"):
        raise UsageError(f"{path}: must be a checkpoint of a masked language model, it is one of --task {name}")


def check_rows(path: str, state: Dict[str, Any], task: Any, data: str) -> None:
    """A dictionary must be that of the checkpoint: as many entries as its table of embeddings has rows."""
    tables = [t for name, t in state["model"].items() if name.endswith("embed_tokens.weight") and t.dim() == 2]
    dictionary = task.source_dictionary
    if len(tables) == 1 and dictionary is not None and len(dictionary) != len(tables[0]):
        raise UsageError(
            f"{os.path.join(first_directory(data), 'dict.txt')}: has {len(dictionary)} entries with <mask>, the model in "
            f"{path} has {len(tables[0])} rows: it is not the model's"
        )


@contextmanager
def building(path: str, state: Dict[str, Any]) -> Iterator[None]:
    """Build what a checkpoint's own settings ask for, and load its weights: one line where they don't go together.

    A model that would be larger than what the file holds is not built: it could never be filled, and may be made up to
    take all memory.

    Raises:
        UsageError: names the file and what does not fit.
    """
    tensors = [t for part in ("model", "criterion") for t in (state.get(part) or {}).values()]
    # what is stored counts, and once, whatever views there are of it
    held = sum(size // kind for _, size, kind in {(*storage_of(t), t.element_size()) for t in tensors})
    room = 4 * held + SLACK
    register, tabulate = torch.nn.Module.register_parameter, SinusoidalPositionalEmbedding.get_embedding

    def take(numbers: int) -> None:
        nonlocal room
        room -= numbers
        if room < 0:
            raise UsageError(f"{path}: does not fit its own settings: they ask for a larger model than it holds")

    def tabulate_within(rows: int, width: int, *rest: Any) -> torch.Tensor:
        take(rows * width)  # positions that are not learned are no parameter
        return tabulate(rows, width, *rest)

    def register_within(module: torch.nn.Module, name: str, parameter: Optional[torch.nn.Parameter]) -> None:
        take(EACH + (0 if parameter is None else parameter.numel()))
        register(module, name, parameter)

    torch.nn.Module.register_parameter = register_within
    SinusoidalPositionalEmbedding.get_embedding = staticmethod(tabulate_within)
    try:
        yield
    except CheckpointError as error:
        raise error.at(path) from None
    except UsageError:
        raise
    except Exception as error:  # settings may be anything
        said = " ".join(str(error).split())[:300]
        raise UsageError(f"{path}: does not fit its own settings: {said or type(error).__name__}") from None
    finally:
        torch.nn.Module.register_parameter = register
        SinusoidalPositionalEmbedding.get_embedding = staticmethod(tabulate)


def require_proposer(loaded: Loaded, path: str, option: str) -> Any:
    """The criterion, where it is MAP-Net's."""
    if not loaded.has_proposer:
        why = "was not trained with --criterion mapnet"
        if hasattr(loaded.criterion, "proposer"):
            why = "lost what its criterion had learned"
        raise UsageError(f"{option}: {path} has no MAP-Net proposer, it {why}")
    return loaded.criterion
