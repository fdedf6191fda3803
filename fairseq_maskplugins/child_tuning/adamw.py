"""ChildTuning's AdamW as a plain PyTorch optimizer (torch, no fairseq)."""

from typing import Any, Optional, Sequence, Tuple, Union

import torch

from ..compat import has_fused_adam
from ..errors import UsageError
from . import DEFAULT_RESERVE_P
from .masks import FixedMask, KeyedMask, grid_share
from .optim import ChildAdam, ParameterOffsets
from .options import build_masking


class ChildTuningAdamW(ChildAdam):
    """ChildTuning's AdamW for any PyTorch model.

    In a loop of your own or in transformers' ``Trainer``: ``ChildTuningAdamW(model.parameters(), lr=2e-5, reserve_p=0.3)``.
    The same parameters, options and seed give the updates of fairseq's ``--optimizer child_tuning_adam``.

    Args:
        params: parameters or parameter groups, in an order that does not change; all of them are given here.
        lr, betas, eps, weight_decay: as in AdamW.
        reserve_p: fraction of the entries that is kept, in (0, 1]; 1 is AdamW.
        mode: ``"F"`` (a fresh random mask at each update) or ``"D"`` (the fixed masks of ``masks``).
        seed: of the masks of mode F.
        target: ``"gradient"`` (the paper) or ``"update"``: what is masked.
        masks: for mode D a bool tensor for each parameter, in order; None for one that trains freely. ``reserve_p`` is
            then what the kept gradients are divided by.
        rescale: divide by ``reserve_p``.
        decay: ``"all"`` or ``"child"``, what weight decay reaches; None is ``"all"`` for F, ``"child"`` for D.

    Raises:
        UsageError: a value out of range, masks that don't fit the parameters or the mode.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: Tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        reserve_p: float = DEFAULT_RESERVE_P,
        mode: str = "F",
        seed: int = 1,
        target: str = "gradient",
        masks: Optional[Sequence[Optional[torch.Tensor]]] = None,
        rescale: bool = True,
        decay: Optional[str] = None,
    ):
        params = list(params)
        positions = ParameterOffsets(params)
        masking = build_masking(mode, reserve_p, target, not rescale, decay, eps)
        if (mode == "D") != (masks is not None):
            raise UsageError("masks must be given in mode D, and only there")
        if masks is None:
            mask: Union[KeyedMask, FixedMask] = KeyedMask(seed, grid_share(reserve_p), positions.total)
        else:
            shapes = [None if one is None else (one.dtype, one.shape) for one in masks]
            wanted = [(torch.bool, p.shape) for p in positions.params]
            if len(shapes) != len(wanted) or any(has not in (None, needs) for has, needs in zip(shapes, wanted)):
                raise UsageError("masks must hold, for each parameter, None or a bool tensor of its shape")
            mask = FixedMask([p.numel() for p in positions.params], masks)
        self.setup = (positions, mask, masking)
        self.fused = reserve_p < 1 and all(has_fused_adam(p.device) for p in positions.params)
        super().__init__(params, lr, betas, eps, weight_decay)
