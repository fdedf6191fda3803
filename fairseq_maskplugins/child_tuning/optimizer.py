"""``--optimizer child_tuning_adam`` and ``child_tuning_sgd``: fairseq's ``adam`` and ``sgd`` with a mask."""

import ast
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import FairseqAdamConfig
from omegaconf import II

from ..compat import has_fused_adam
from ..errors import UsageError
from . import DEFAULT_RESERVE_P, maskfile
from .masks import FixedMask, KeyedMask, grid_share
from .optim import ChildAdam, ChildSGD, ParameterOffsets, build
from .options import MODES, build_masking, check_choice, check_share

logger = logging.getLogger(__name__)


@dataclass
class ChildTuningOptions(FairseqDataclass):
    child_tuning_mode: str = field(
        default="F", metadata={"help": "F: a fresh random mask at each update; D: the fixed mask of --child-tuning-mask"}
    )
    reserve_p: Optional[float] = field(
        default=None, metadata={"help": "share of the entries that is kept, in (0, 1] (default: 0.3 for F, the mask's own for D)"}
    )
    child_tuning_target: str = field(
        default="gradient",
        metadata={"help": "what is masked: gradient (the paper), or update (what is not selected stays where it is)"},
    )
    child_tuning_mask: Optional[str] = field(
        default=None, metadata={"help": "mask file for mode D, written by 'maskplugins fisher'"}
    )
    child_tuning_no_rescale: bool = field(
        default=False, metadata={"help": "do not divide what is kept by --reserve-p, as the authors' D"}
    )
    child_tuning_decay: Optional[str] = field(
        default=None,
        metadata={"help": "whether weight decay reaches what is not selected: all or child (default: all, for D child)"},
    )
    seed: int = II("common.seed")
    ddp_backend: str = II("distributed_training.ddp_backend")
    pipeline_model_parallel: bool = II("distributed_training.pipeline_model_parallel")
    use_bmuf: bool = II("optimization.use_bmuf")


@dataclass
class ChildTuningAdamConfig(FairseqAdamConfig, ChildTuningOptions):
    child_tuning_exact: bool = field(
        default=False,
        metadata={"help": "fairseq's operations, to the last bit, also where torch has a fused Adam, which is faster"},
    )


@dataclass
class ChildTuningSGDConfig(ChildTuningOptions):
    momentum: float = field(default=0.0, metadata={"help": "momentum factor"})
    weight_decay: float = field(default=0.0, metadata={"help": "weight decay", "argparse_alias": "--wd"})
    lr: List[float] = II("optimization.lr")


def _refuse_what_cannot_be_right(cfg: Any, params: List[Any]) -> None:
    sharded = any(hasattr(p, "_is_sharded") or type(p).__name__ == "FlatParameter" for p in params)
    if getattr(cfg, "ddp_backend", None) == "fully_sharded" or sharded:
        raise UsageError(
            "--ddp-backend fully_sharded can't go with ChildTuning: sharded flat parameters have lost their positions; "
            "use --zero-sharding os"
        )
    for option in ("pipeline_model_parallel", "use_bmuf"):
        if getattr(cfg, option, False):
            raise UsageError(f"--{option.replace('_', '-')} can't go with ChildTuning")


def _mask_builder(cfg: Any) -> Tuple[float, Callable[[ParameterOffsets], Any]]:
    """The share that is kept, and what builds the mask once the parameters are known."""
    mode = check_choice("--child-tuning-mode", cfg.child_tuning_mode, MODES)
    path = cfg.child_tuning_mask
    if mode == "F":
        if path:
            raise UsageError("--child-tuning-mask is for --child-tuning-mode D, got mode F")
        asked = check_share("--reserve-p", DEFAULT_RESERVE_P if cfg.reserve_p is None else cfg.reserve_p)
        reserve_p = grid_share(asked)
        return reserve_p, lambda positions: KeyedMask(cfg.seed, reserve_p, positions.total)
    if not path:
        raise UsageError("--child-tuning-mode D needs --child-tuning-mask FILE; 'maskplugins fisher' writes it")
    if cfg.reserve_p is not None:
        check_share("--reserve-p", cfg.reserve_p)
    manifest, tensors = maskfile.read(path, "mask")
    reserve_p = manifest["reserve_p"]
    if cfg.reserve_p is not None and abs(cfg.reserve_p - reserve_p) > 1e-9:
        raise UsageError(
            f"--reserve-p is {cfg.reserve_p:g} and {path} was selected with {reserve_p:g}; "
            "'maskplugins fisher select' makes a mask for another share"
        )

    def fixed(positions: ParameterOffsets) -> FixedMask:
        params = positions.params
        flat = len(params) == 1 and params[0].dim() == 1 and len(manifest["parameters"]) > 1
        shapes = None if flat else [p.shape for p in params]  # of a flat fp32 copy only the total size is known
        maskfile.check_parameters(path, manifest, shapes, positions.total)
        masks = maskfile.selected_tensors(manifest, tensors)
        sizes = [torch.Size(p["shape"]).numel() for p in manifest["parameters"]]
        return FixedMask(sizes, masks)

    return reserve_p, fixed


class _ChildTuning(FairseqOptimizer):
    optimizer_class: type

    def __init__(self, cfg: Any, params: Any):
        super().__init__(cfg)
        params = list(params)
        _refuse_what_cannot_be_right(cfg, params)
        for name, highest in (("weight_decay", math.inf), ("momentum", 1.0)):
            value = getattr(cfg, name, 0.0)
            if not (0 <= value <= highest and math.isfinite(value)):
                rule = "a number of 0 or more" if highest == math.inf else f"a number in [0, {highest:g}]"
                raise UsageError(f"--{name.replace('_', '-')} must be {rule}, got {value:g}")
        reserve_p, make_mask = _mask_builder(cfg)
        masking = build_masking(
            cfg.child_tuning_mode,
            reserve_p,
            cfg.child_tuning_target,
            cfg.child_tuning_no_rescale,
            cfg.child_tuning_decay,
            getattr(cfg, "adam_eps", 1.0),
        )
        # with everything selected the steps are fairseq's own
        exact = getattr(cfg, "child_tuning_exact", True) or reserve_p == 1
        fused = not exact and all(has_fused_adam(p.device) for p in params)
        self._optimizer = build(self.optimizer_class, params, make_mask, masking, fused, **self.optimizer_config)
        logger.info(
            f"ChildTuning-{cfg.child_tuning_mode}: {reserve_p:g} of the entries are kept, target {masking.target}, "
            f"rescaled by {masking.scale:g}, weight decay on {'all' if masking.decay_all else 'the child'}"
        )

    def _lr(self) -> float:
        return self.cfg.lr[0] if isinstance(self.cfg.lr, Sequence) else self.cfg.lr


@register_optimizer("child_tuning_adam", dataclass=ChildTuningAdamConfig)
class ChildTuningAdam(_ChildTuning):
    """fairseq's ``adam`` (decoupled weight decay) with ChildTuning; with ``--reserve-p 1`` equal to it to the bit."""

    optimizer_class = ChildAdam

    def __init__(self, cfg: ChildTuningAdamConfig, params: Any):
        if getattr(cfg, "fp16_adam_stats", False):
            raise UsageError("--fp16-adam-stats needs apex's FusedAdam and can't go with ChildTuning")
        super().__init__(cfg, params)

    @property
    def optimizer_config(self) -> Dict[str, Any]:
        betas = self.cfg.adam_betas
        try:
            beta1, beta2 = ast.literal_eval(betas) if isinstance(betas, str) else betas
            betas = (float(beta1), float(beta2))
        except (ValueError, SyntaxError, TypeError):
            raise UsageError(f"--adam-betas must be a pair of numbers such as '(0.9, 0.98)', got {betas}") from None
        if not all(0 <= beta < 1 for beta in betas):
            raise UsageError(f"--adam-betas must lie in [0, 1), got {betas}")
        return {"lr": self._lr(), "betas": betas, "eps": self.cfg.adam_eps, "weight_decay": self.cfg.weight_decay}


@register_optimizer("child_tuning_sgd", dataclass=ChildTuningSGDConfig)
class ChildTuningSGD(_ChildTuning):
    """fairseq's ``sgd`` with ChildTuning; with ``--reserve-p 1`` equal to it to the bit."""

    optimizer_class = ChildSGD

    @property
    def optimizer_config(self) -> Dict[str, Any]:
        return {"lr": self._lr(), "momentum": self.cfg.momentum, "weight_decay": self.cfg.weight_decay}
