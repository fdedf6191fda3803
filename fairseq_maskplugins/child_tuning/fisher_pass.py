"""The pass over the training set behind ``maskplugins fisher``: fairseq's data, task, criterion and checkpoint."""

import argparse
import os
from functools import partial
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import torch
from fairseq import options, tasks, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.modules import LearnedPositionalEmbedding

from .. import plugins  # noqa: F401
from ..checkpoints import read_upgraded_checkpoint, require_checkpoint
from ..cli import check_outputs, import_user_dir, reporting, split_user_dir
from ..decoupled_mlm.loading import check_dictionary_size, load_data_sets
from ..errors import UsageError
from ..rng import SequenceDraws
from . import maskfile
from .fisher import Fisher, add_batch_gradient, covered_names

Batch = Tuple[Any, List[int]]  # rows of a data set


def compute(ours: argparse.Namespace, rest: List[str]) -> int:
    """Parse fairseq's options and run, on as many ranks as they say."""
    user_dir, _ = split_user_dir(rest)
    if user_dir is not None:
        import_user_dir(user_dir)
    parser = options.get_training_parser()
    try:
        args = options.parse_args_and_arch(parser, input_args=rest)
    except RuntimeError as error:
        if str(error):
            raise
        # all that fairseq says of an --arch that it does not know, such as the one that it takes where none is given
        raise UsageError("--arch must be one that fairseq knows, as for fairseq-train: give the checkpoint's") from None
    if getattr(args, "data", None) == "":
        raise UsageError("DATA must not be empty")
    read = (args.finetune_from_model, args.restore_file, os.path.join(args.save_dir, args.restore_file))
    check_outputs({"--fisher": ours.fisher, "--mask": ours.mask}, *read)
    args.tpu = False  # fairseq takes --bf16 for a TPU's; here it is only the type that is computed in
    cfg = convert_namespace_to_omegaconf(args)
    distributed_utils.call_main(cfg, _main, ours=ours)
    return 0


def _main(cfg: Any, ours: argparse.Namespace) -> None:
    utils.import_user_module(cfg.common)
    # as fairseq-train does: a head that is new begins with the values that training begins with
    np.random.seed(cfg.common.seed)
    utils.set_torch_seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    model, criterion = task.build_model(cfg.model), task.build_criterion(cfg.criterion)
    path = _load(cfg, task, model, criterion)
    if cfg.common.fp16 or cfg.common.bf16:
        model, criterion = (x.to(torch.bfloat16 if cfg.common.bf16 else torch.float16) for x in (model, criterion))
    device = torch.device("cuda" if torch.cuda.is_available() and not cfg.common.cpu else "cpu")
    parts = [part.to(device).eval() for part in (model, criterion)]  # no dropout: the model as it predicts
    for module in model.modules():
        if hasattr(module, "skip_embed_dim_check"):
            module.skip_embed_dim_check = True  # attention then calls its projections as layers
        if hasattr(module, "ever_training"):
            module.ever_training = True  # fairseq 0.12.2 has a fast path, for inference, with weights of its own
    world = max(cfg.distributed_training.distributed_world_size, 1)
    rank = cfg.distributed_training.distributed_rank if world > 1 else 0

    batches = _batches(cfg, task, model, ours.max_examples)
    named = names_of(parts)
    covered = set(covered_names(named, ours.cover))
    if not covered:
        raise UsageError(f"--cover {ours.cover} covers none of the {len(named)} parameters")
    fisher = Fisher(torch.nn.ModuleList(parts), {k: p for k, p in named.items() if k in covered}, _ids_of, not ours.loop)
    _add_all(fisher, cfg, ours, task, parts, batches[rank::world], device, rank)
    _reduce(fisher, named, world, device)
    if rank == 0:
        with reporting(ours.json) as report:
            _write(fisher, cfg, ours, named, covered, path, report)


def _load(cfg: Any, task: Any, model: torch.nn.Module, criterion: torch.nn.Module) -> str:
    path = cfg.checkpoint.finetune_from_model or cfg.checkpoint.restore_file
    if path == "checkpoint_last.pt":
        path = os.path.join(cfg.checkpoint.save_dir, path)
    require_checkpoint(path, "; give one with --restore-file or --finetune-from-model")
    state = read_upgraded_checkpoint(path)
    check_dictionary_size(path, state, task, str(cfg.task.data))
    try:
        model.load_state_dict(state["model"], strict=True, model_cfg=cfg.model)
        if state.get("criterion") and utils.has_parameters(criterion):
            criterion.load_state_dict(state["criterion"], strict=True)
    except UsageError:
        raise
    except Exception as error:  # names and shapes may be any
        raise UsageError(f"{path}: does not fit the model: {' '.join(str(error).split())[:300]}") from None
    return path


def _batches(cfg: Any, task: Any, model: Any, max_examples: Optional[int]) -> List[Batch]:
    """The same batches on every rank; with ``max_examples`` a keyed sample of them, the last one cut."""
    batches: List[Batch] = []
    for epoch, dataset in enumerate(load_data_sets(task, str(cfg.task.data), "train"), 1):
        iterator = task.get_batch_iterator(
            dataset=dataset,
            max_tokens=cfg.dataset.max_tokens,
            max_sentences=cfg.dataset.batch_size,
            max_positions=utils.resolve_max_positions(task.max_positions(), model.max_positions()),
            ignore_invalid_inputs=True,
            required_batch_size_multiple=cfg.dataset.required_batch_size_multiple,
            seed=cfg.common.seed,
            epoch=epoch,
        )
        batches += [(dataset, [int(i) for i in batch]) for batch in iterator.frozen_batches]
    if max_examples is None:
        return batches
    order = np.argsort(SequenceDraws(cfg.common.seed, 0, np.arange(len(batches))).bits("fisher", 1)[:, 0])
    chosen: List[Batch] = []
    for index in order:
        if max_examples <= 0:
            break
        dataset, rows = batches[index]
        chosen.append((dataset, rows[:max_examples]))
        max_examples -= len(chosen[-1][1])
    return chosen


def _ids_of(module: torch.nn.Module, x: torch.Tensor) -> Optional[torch.Tensor]:
    if isinstance(module, LearnedPositionalEmbedding):
        return utils.make_positions(x, module.padding_idx) if module.padding_idx is not None else None
    return x if not x.is_floating_point() else None


def _add_all(
    fisher: Fisher,
    cfg: Any,
    ours: argparse.Namespace,
    task: Any,
    parts: List[Any],
    batches: List[Batch],
    device: torch.device,
    rank: int,
) -> None:
    model, criterion = parts
    half = torch.bfloat16 if cfg.common.bf16 else torch.float16 if cfg.common.fp16 else None

    def move(x: torch.Tensor) -> torch.Tensor:
        x = x.to(device)
        return x.to(half) if half is not None and x.dtype == torch.float32 else x

    def collate(dataset: Any, indices: List[int]) -> Dict[str, Any]:
        sample = utils.apply_to_sample(move, dataset.collater([dataset[i] for i in indices]))
        return task.mask_batch(sample, task.schedule.start) if hasattr(task, "mask_batch") else sample

    def loss_of(sample: Dict[str, Any]) -> torch.Tensor:
        return criterion(model, sample)[0]

    try:
        from tqdm import tqdm
    except ImportError:
        raise UsageError("maskplugins fisher needs tqdm: pip install 'fairseq_maskplugins[fisher]'") from None
    with tqdm(total=sum(len(batch) for _, batch in batches), unit="examples", disable=rank > 0) as progress:
        for dataset, batch in batches:
            sample = collate(dataset, batch)
            if ours.per_batch:
                add_batch_gradient(fisher, loss_of(sample), len(batch), cfg.optimization.clip_norm)
            else:
                fisher.add(loss_of, sample, [partial(collate, dataset, [i]) for i in batch], _rows(sample, task))
            progress.update(len(batch))


def _rows(sample: Dict[str, Any], task: Any) -> Optional[torch.Tensor]:
    """Example of each predicted token, for the heads that see only those."""
    target = sample.get("target")
    if torch.is_tensor(target) and target.dim() == 2 and not target.is_floating_point():
        pad = task.source_dictionary.pad() if task.source_dictionary is not None else 1
        return target.ne(pad).nonzero()[:, 0]
    return None


def _reduce(fisher: Fisher, named: Dict[str, Any], world: int, device: torch.device) -> None:
    if world == 1:
        return
    count = torch.tensor(float(fisher.examples), dtype=torch.float64, device=device)
    torch.distributed.all_reduce(count)
    fisher.examples = int(count)
    for name, p in named.items():  # the same order on all ranks; one that had no gradient on one rank may on another
        has = torch.tensor(float(name in fisher.sums), device=device)
        torch.distributed.all_reduce(has)
        if has > 0:
            fisher.sums.setdefault(name, torch.zeros(p.shape, dtype=torch.float64, device=device))
            torch.distributed.all_reduce(fisher.sums[name])


def _write(
    fisher: Fisher, cfg: Any, ours: argparse.Namespace, named: Dict[str, Any], covered: Any, path: str, report: Dict[str, Any]
) -> None:
    tensors = {name: value.cpu().numpy() for name, value in fisher.result().items()}
    parameters = [
        {"name": name, "shape": list(p.shape), "covered": name in tensors, "no_gradient": name in covered and name not in tensors}
        for name, p in named.items()
    ]
    manifest = {
        "parameters": parameters,
        "checkpoint": path,
        "data": str(cfg.task.data),
        "task": cfg.task._name,
        "criterion": cfg.criterion._name,
        "arch": getattr(cfg.model, "arch", None) or cfg.model._name,
        "cover": ours.cover,
        "per_batch": ours.per_batch,
        "examples": fisher.examples,
        "seed": cfg.common.seed,
    }
    if ours.fisher:
        maskfile.write(ours.fisher, "fisher", tensors, manifest)
        print(f"{ours.fisher}: Fisher values of {len(tensors)} parameters from {fisher.examples} examples")
    if fisher.loop:
        print(f"one example at a time: {', '.join(fisher.loop)}")
    report.update({key: value for key, value in manifest.items() if key != "parameters"})
    report.update(fisher=ours.fisher, parameters=len(tensors), one_at_a_time=fisher.loop or [])
    if ours.mask:
        report.update(maskfile.write_mask(ours.mask, manifest, tensors, ours.reserve_p))


def names_of(parts: List[Any]) -> Dict[str, Any]:
    """Parameters that are trained, by name, in the order in which the trainer hands them to the optimizer."""
    named: Dict[str, Any] = {}
    seen = set()
    for prefix, part in zip(("", "criterion."), parts):
        for name, p in part.named_parameters():
            if p.requires_grad and id(p) not in seen:
                seen.add(id(p))
                named[prefix + name] = p
    return named
