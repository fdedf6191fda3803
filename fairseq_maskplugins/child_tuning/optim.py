"""The optimizers as ``torch.optim.Optimizer``, for any model and without fairseq."""

from itertools import chain
from typing import Any, Callable, Dict, Iterable, Optional, Tuple, Union

import torch

from ..errors import UsageError
from .masks import FixedMask, KeyedMask
from .step import Masking, Workspace, adam_run, sgd_run

UPDATE = "child_tuning_update"  # in every parameter group, and so in every checkpoint: updates taken so far
HALVES = (torch.float16, torch.bfloat16)


class ParameterOffsets:
    """Where each parameter begins, in the order in which the optimizer was handed them (parameter groups in order)."""

    def __init__(self, params: Iterable[Any]):
        params = list(params)
        if params and isinstance(params[0], dict):
            params = [p for group in params for p in group["params"]]
        self.params, self.starts, self.total = params, {}, 0
        for p in params:
            if p.dtype not in (torch.float32, *HALVES):
                raise UsageError(f"ChildTuning needs float32, float16 or bfloat16 parameters, got {p.dtype}")
            # kept by identity; holding the parameters keeps their identities from being used again
            self.starts[id(p)] = self.total
            self.total += p.numel()

    def start(self, p: torch.Tensor) -> int:
        return self.starts[id(p)]


class _ChildOptimizer(torch.optim.Optimizer):
    """What Adam and SGD share. ``setup`` is an attribute of the class, not of the instance: wrappers that build a
    second optimizer of the same class for a part of the parameters (ZeRO) then keep the positions in the whole."""

    setup: Tuple[ParameterOffsets, Union[KeyedMask, FixedMask], Masking]
    float_states: Tuple[str, ...]
    momentum: str  # the state that would go on moving what is not selected
    option: str  # its name for fairseq, for messages

    def __init__(self, params: Any, defaults: Dict[str, Any]):
        super().__init__(params, {**defaults, UPDATE: 0})
        self._work = Workspace()
        self._cleared: set = set()

    @property
    def supports_memory_efficient_fp16(self) -> bool:
        return True

    @property
    def supports_flat_params(self) -> bool:
        return True

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Load a state of this optimizer; one that another optimizer wrote is refused."""
        if any(not self.defaults.keys() <= group.keys() for group in state_dict["param_groups"]):
            raise UsageError(
                f"the checkpoint's optimizer state was not written by {self.option}; with --reset-optimizer it starts from "
                "the weights, with a fresh state, learning-rate schedule and count of updates"
            )
        self._cleared = set()  # the loaded momentum may reach outside the child
        super().load_state_dict(state_dict)
        # torch has cast the states to the parameters' types: in half precision small second moments are 0 by now
        saved = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        ours = chain.from_iterable(group["params"] for group in self.param_groups)
        for key, p in zip(saved, ours):
            for name in self.float_states:
                value = state_dict["state"].get(key, {}).get(name)
                if value is not None and p.dtype != torch.float32:
                    self.state[p][name] = value.to(p.device, torch.float32, copy=True)

    @torch.no_grad()
    def step(self, closure: Optional[Callable] = None) -> Any:
        """Take one step; returns the closure's loss, or None."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p.grad.is_sparse:
                    raise UsageError("ChildTuning does not take sparse gradients: switch sparse embeddings off")
                self._step_param(p, self.state[p], group)
            group[UPDATE] += 1
        return loss

    def _step_param(self, p: torch.Tensor, state: Dict[str, Any], group: Dict[str, Any]) -> None:
        data = p.data.contiguous()  # itself, but for transposed or strided weights
        self._start_state(state, data, group)
        for name in self.float_states:
            # a loaded state may have taken the parameter's type
            if name in state and (state[name].dtype, state[name].device) != (torch.float32, data.device):
                state[name] = state[name].to(data.device, torch.float32)
        positions, mask, masking = self.setup
        start, work = positions.start(p), self._work
        flat, grad = data.view(-1), p.grad.data.reshape(-1)
        states = {name: state[name].view(-1) for name in self.float_states if name in state}
        # what lies outside a fixed child may have momentum from a state that was loaded; it must not carry it on
        clear = masking.fixed and masking.target == "gradient" and id(p) not in self._cleared
        for low, high, covered in mask.pieces(start, flat.numel(), p.device):
            bits = None
            if covered:
                bits = work.get("bits", high - low, p.device, torch.int32)
                mask.fill(group[UPDATE], low, high, bits, work.words("spare", bits))
            run = slice(low - start, high - start)
            if clear and covered and self.momentum in states:
                states[self.momentum][run].view(torch.int32).mul_(bits)
            self._run(flat[run], grad[run], {name: x[run] for name, x in states.items()}, bits, state, group)
        self._cleared.add(id(p))
        if data is not p.data and data.data_ptr() != p.data.data_ptr():
            p.data.copy_(data)


class ChildAdam(_ChildOptimizer):
    """Adam as fairseq's, with decoupled weight decay, and a mask. States: those of fairseq's Adam.

    Args:
        params: parameters, or parameter groups.
        lr, betas, eps, weight_decay: as in fairseq's Adam.
    """

    option = "child_tuning_adam"
    momentum = "exp_avg"
    float_states = ("exp_avg", "exp_avg_sq")
    fused = False

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: Tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def _start_state(self, state: Dict[str, Any], data: torch.Tensor, group: Dict[str, Any]) -> None:
        if not state:
            state["step"] = 0
            for name in self.float_states:
                state[name] = torch.zeros_like(data, dtype=torch.float32)
        state["step"] += 1

    def _run(self, p: Any, grad: Any, states: Dict[str, Any], bits: Any, state: Dict[str, Any], group: Any) -> None:
        moments = states["exp_avg"], states["exp_avg_sq"]
        adam_run(p, grad, *moments, bits, self.setup[2], state["step"], group, self._work, self.fused)


class ChildSGD(_ChildOptimizer):
    """SGD with momentum and weight decay as torch's, and a mask.

    Args:
        params: parameters, or parameter groups.
        lr, momentum, weight_decay: as in torch's SGD.
    """

    option = "child_tuning_sgd"
    momentum = "momentum_buffer"
    float_states = ("momentum_buffer",)

    def __init__(self, params: Any, lr: float = 1e-3, momentum: float = 0.0, weight_decay: float = 0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def _start_state(self, state: Dict[str, Any], data: torch.Tensor, group: Dict[str, Any]) -> None:
        self._first = group["momentum"] != 0 and state.get("momentum_buffer") is None
        if self._first:
            state["momentum_buffer"] = torch.zeros_like(data, dtype=torch.float32)

    def _run(self, p: Any, grad: Any, states: Dict[str, Any], bits: Any, state: Dict[str, Any], group: Any) -> None:
        buffer = states.get("momentum_buffer")
        sgd_run(p, grad, buffer, bits, self.setup[2], self._first, group, self._work)


def build(
    cls: type,
    params: Iterable[Any],
    make_mask: Callable[[ParameterOffsets], Union[KeyedMask, FixedMask]],
    masking: Masking,
    fused: bool = False,
    **options: Any,
) -> _ChildOptimizer:
    """Build an optimizer (``cls``: :class:`ChildAdam` or :class:`ChildSGD`) over ``params``, in their order.

    Args:
        make_mask: gives the mask for the positions of the parameters.
        fused: use torch's fused kernel (Adam only).
        options: the optimizer's own.
    """
    params = list(params)
    positions = ParameterOffsets(params)
    bound = type(cls.__name__, (cls,), {"setup": (positions, make_mask(positions), masking), "fused": fused})
    return bound(params, **options)
