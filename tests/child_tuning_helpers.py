"""Parameters, gradients and masks for tests of ChildTuning, and the optimizers that fairseq builds in every precision."""

import numpy as np
import torch
from fairseq import optim
from fairseq.optim.fp16_optimizer import FP16Optimizer, MemoryEfficientFP16Optimizer
from omegaconf import OmegaConf

import fairseq_maskplugins.plugins  # noqa: F401  (registers)
from fairseq_maskplugins.child_tuning import maskfile
from fairseq_maskplugins.child_tuning.masks import FixedMask, KeyedMask

SHAPES = [(300, 40), (7,), (13, 5, 2), (1,), (260, 530)]  # together more than one cell
ADAM = dict(lr=1e-2, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.1)


def parameters(shapes=SHAPES, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in shapes]


def gradient(update, index, shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1000 * update + index))


def run(optimizer, params, steps, start=0):
    for update in range(start, start + steps):
        for index, p in enumerate(params):
            p.grad = gradient(update, index, p.shape).to(p.dtype)
        optimizer.step()


def words(mask, update, low, high):
    out, spare = torch.empty(high - low, dtype=torch.int32), torch.empty(high - low, dtype=torch.int32)
    mask.fill(update, low, high, out, spare)
    assert set(out.unique().tolist()) <= {0, 1}
    return out.bool()


def whole_mask(mask, update):
    pieces = list(mask.pieces(0, mask.total, torch.device("cpu")))
    assert [low for low, _, _ in pieces] == [0] + [high for _, high, _ in pieces][:-1]
    parts = [words(mask, update, a, b) if covered else torch.ones(b - a, dtype=torch.bool) for a, b, covered in pieces]
    return torch.cat(parts)


def split(flat, shapes=SHAPES):
    return [x.view(s) for x, s in zip(flat.split([int(np.prod(s)) for s in shapes]), shapes)]


def fixed_masks(share=0.3, shapes=SHAPES):
    generator = torch.Generator().manual_seed(5)
    return [torch.rand(shape, generator=generator) < share for shape in shapes]


def keyed(seed, p):
    return lambda positions: KeyedMask(seed, p, positions.total)


def fixed(selected, shapes=SHAPES):
    return lambda positions: FixedMask([int(np.prod(s)) for s in shapes], selected)


NAMES = [f"layer.{index}.weight" for index in range(len(SHAPES))]
MODES = ["fp32", "fp16", "fp16_no_flatten", "memory_efficient_fp16", "bf16", "memory_efficient_bf16", "amp"]


def config(name="child_tuning_adam", **options):
    """The parts of fairseq's configuration that optimizers read, with the options of one."""
    defaults = {"adam_betas": "(0.9, 0.98)", "adam_eps": 1e-8, "weight_decay": 0.0} if "adam" in name else {}
    common = dict(seed=7, tpu=False, fp16=True, bf16=False, fp16_scale_window=None, fp16_init_scale=4)
    common.update(fp16_scale_tolerance=0.0, threshold_loss_scale=None, min_loss_scale=1e-4, model_parallel_size=1)
    common.update(fp16_no_flatten_grads=False)
    return OmegaConf.create(
        {
            "optimizer": {"_name": name, **defaults, **options},
            "common": common,
            "optimization": {"lr": [1e-2], "update_freq": [1], "use_bmuf": False},
            "distributed_training": {"ddp_backend": "legacy_ddp", "pipeline_model_parallel": False, "distributed_world_size": 1},
        }
    )


def write_mask(path, selected, names=NAMES, shapes=SHAPES, reserve_p=0.3, **manifest):
    tensors = {name: mask.numpy() for name, mask in zip(names, selected) if mask is not None}
    listed = [
        {"name": name, "shape": list(shape), "covered": mask is not None} for name, shape, mask in zip(names, shapes, selected)
    ]
    maskfile.write(str(path), "mask", tensors, {"parameters": listed, "reserve_p": reserve_p, **manifest})
    return str(path)


def build_mode(mode, params, monkeypatch, **options):
    """What the trainer builds under a precision option; the flat copy asks CUDA for its device."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    cfg = config(**options)
    cfg.common.bf16 = "bf16" in mode
    cfg.common.fp16_no_flatten_grads = mode == "fp16_no_flatten"
    if mode == "fp32":
        return optim.build_optimizer(cfg.optimizer, params)
    if mode == "amp":
        return optim.AMPOptimizer.build_optimizer(cfg, params)
    return (MemoryEfficientFP16Optimizer if "memory" in mode else FP16Optimizer).build_optimizer(cfg, params)


def train_mode(mode, params, optimizer, updates, ones=False):
    for update in range(updates):
        optimizer.zero_grad()
        loss = sum(((1 if ones else gradient(update, i, p.shape)) * p.float()).sum() for i, p in enumerate(params))
        optimizer.backward(loss)
        optimizer.clip_grad_norm(1.0)
        optimizer.step()


def dtype_of(mode):
    return torch.float32 if mode in ("fp32", "amp") else torch.bfloat16 if "bf16" in mode else torch.float16
