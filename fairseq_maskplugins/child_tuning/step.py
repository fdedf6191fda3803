"""One optimizer step on a run of entries, with a mask. Pure: tensors in, changed in place.

Operation for operation these are the steps of fairseq's ``Adam`` and torch's ``SGD``, so that they are equal to the bit
where everything is selected. Runs are short enough to stay in cache, which is why they are also faster. Adam's
operations can be those of torch's fused kernel instead: equal in exact arithmetic, and faster again.
"""

import math
from typing import NamedTuple, Optional

import torch

SMALLEST = torch.finfo(torch.float32).tiny
ABSORBS = 1e-11  # an eps from here on swallows the square root of SMALLEST, 1.1e-19, without a trace


class Masking(NamedTuple):
    """What a mask does.

    Attributes:
        target: "gradient" (the paper: ``g * M / p`` goes into the optimizer) or "update" (the optimizer sees the whole
            gradient, and its step is ``step * M / p``).
        scale: ``1 / p``, or 1 without rescaling.
        decay_all: whether weight decay reaches entries that are not selected.
        fixed: whether the mask stays the same (D): then what is not selected never moves but by weight decay.
    """

    target: str
    scale: float
    decay_all: bool
    fixed: bool


class Workspace:
    """Buffers that every run of entries uses again; as large as the largest run."""

    def __init__(self) -> None:
        self._buffers: dict = {}

    def get(self, name: str, size: int, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised buffer of ``size`` float32 or int32 entries; one name is one piece of memory."""
        buffer = self._buffers.get((name, device))
        if buffer is None or buffer.numel() < size:
            buffer = self._buffers[name, device] = torch.empty(size, dtype=torch.int32, device=device)
        return buffer[:size].view(dtype)

    def floats(self, name: str, like: torch.Tensor) -> torch.Tensor:
        return self.get(name, like.numel(), like.device, torch.float32)

    def words(self, name: str, like: torch.Tensor) -> torch.Tensor:
        return self.get(name, like.numel(), like.device, torch.int32)


def as_float(x: torch.Tensor, name: str, work: Workspace) -> torch.Tensor:
    """``x`` itself where it is float32, else a copy in a buffer."""
    return x if x.dtype == torch.float32 else work.floats(name, x).copy_(x)


def masked(x: torch.Tensor, bits: torch.Tensor, name: str, work: Workspace) -> torch.Tensor:
    """``x`` where the words ``bits`` are 1, +0 where they are 0, in a buffer; ``x`` float32."""
    return torch.mul(x.view(torch.int32), bits, out=work.words(name, x)).view(torch.float32)


def adam_run(
    param: torch.Tensor,
    grad: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    bits: Optional[torch.Tensor],
    masking: Masking,
    step: int,
    group: dict,
    work: Workspace,
    fused: bool = False,
) -> None:
    """A step of Adam with decoupled weight decay, as in fairseq: ``lr * weight_decay`` of a weight is taken off.

    Args:
        param, grad: ``[N]``, float32, float16 or bfloat16 (computed in float32).
        exp_avg, exp_avg_sq: ``[N]``, float32.
        bits: ``[N]`` words of 32 bits, 0 or 1, or None: everything is selected and nothing is rescaled.
        step: number of this update, from 1.
        group: ``lr``, ``betas``, ``eps``, ``weight_decay``.
        fused: torch's fused kernel in place of fairseq's operations.
    """
    (beta1, beta2), lr, eps, weight_decay = group["betas"], group["lr"], group["eps"], group["weight_decay"]
    p, g = as_float(param, "param", work), as_float(grad, "grad", work)
    scale = 1.0  # of the gradient, put into the moments' own factors where it can be
    if bits is not None and masking.target == "gradient":
        g, scale = masked(g, bits, "grad", work), masking.scale
    correction1, correction2 = 1 - beta1**step, 1 - beta2**step
    decay_all = bits is None or masking.decay_all
    on_update = bits is not None and masking.target == "update"
    if fused:
        kernel_decays = decay_all and not on_update
        if weight_decay != 0 and not kernel_decays:
            p.add_(p if decay_all else masked(p, bits, "spare", work), alpha=-weight_decay * lr)
        # what is to be masked is the step, so it is taken from zero first; upwards, and then taken off, since +0 taken
        # off a weight of -0 leaves it as it is
        moved = work.floats("denom", p).zero_() if on_update else p
        torch._fused_adamw_(
            [moved], [g], [exp_avg], [exp_avg_sq], [], [torch.tensor(float(step), device=p.device)],
            lr=-lr if on_update else lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay if kernel_decays else 0.0,
            eps=eps / math.sqrt(correction2),  # fairseq adds eps before the second correction, torch after it
            amsgrad=False, maximize=False,
            # the kernel divides, and leaves the quotient in g, which is a buffer here
            grad_scale=None if scale == 1 else torch.tensor(1 / scale, device=p.device),
        )  # fmt: skip
        if on_update:
            p.add_(masked(moved, bits, "spare", work), alpha=-masking.scale)
        if p is not param:
            param.copy_(p)
        return
    exp_avg.mul_(beta1).add_(g, alpha=(1 - beta1) * scale)
    exp_avg_sq.mul_(beta2).addcmul_(g, g, value=(1 - beta2) * scale**2)
    denom = work.floats("denom", p)
    if eps >= ABSORBS:
        # a square root of zero is 20 times slower than others on some processors, and masks leave many zeros
        torch.clamp(exp_avg_sq, min=SMALLEST, out=denom).sqrt_().add_(eps)
    else:
        torch.sqrt(exp_avg_sq, out=denom).add_(eps)
    step_size = lr * math.sqrt(correction2) / correction1
    if weight_decay != 0:
        p.add_(p if decay_all else masked(p, bits, "spare", work), alpha=-weight_decay * lr)
    if on_update:
        p.addcdiv_(masked(exp_avg, bits, "grad", work), denom, value=-step_size * masking.scale)
    else:
        p.addcdiv_(exp_avg, denom, value=-step_size)
    if p is not param:
        param.copy_(p)


def sgd_run(
    param: torch.Tensor,
    grad: torch.Tensor,
    momentum_buffer: Optional[torch.Tensor],
    bits: Optional[torch.Tensor],
    masking: Masking,
    first: bool,
    group: dict,
    work: Workspace,
) -> None:
    """A step of SGD with momentum as in torch: weight decay is a term of the gradient, added after the gradient's mask.

    With a fixed mask the term is added inside the child only; ``decay_all`` then takes ``lr * weight_decay`` of what
    lies outside off it directly, so that momentum never moves it. Under target "update" the step masks the term too.

    Args:
        param, grad: ``[N]``, float32, float16 or bfloat16 (computed in float32).
        momentum_buffer: ``[N]``, float32, or None without momentum.
        bits: ``[N]`` words of 32 bits, 0 or 1, or None: everything is selected and nothing is rescaled.
        first: whether the momentum buffer starts at this step.
        group: ``lr``, ``momentum``, ``weight_decay``.
    """
    lr, momentum, weight_decay = group["lr"], group["momentum"], group["weight_decay"]
    p, g = as_float(param, "param", work), as_float(grad, "grad", work)
    on_gradient = bits is not None and masking.target == "gradient"
    if on_gradient:
        g = masked(g, bits, "grad", work)
        if masking.scale != 1:
            g.mul_(masking.scale)
    if weight_decay != 0:
        inside = on_gradient and (masking.fixed or not masking.decay_all)
        decayed = masked(p, bits, "spare", work) if inside else p
        g = torch.add(g, decayed, alpha=weight_decay, out=work.floats("grad", p))
    outside = bits is not None and masking.fixed and masking.decay_all and weight_decay != 0
    if outside:
        apart = masked(p, torch.bitwise_xor(bits, 1, out=work.words("denom", p)), "spare", work)
    if momentum != 0:
        if first:
            momentum_buffer.copy_(g)
        else:
            momentum_buffer.mul_(momentum).add_(g, alpha=1)
        g = momentum_buffer
    if bits is not None and masking.target == "update":
        p.add_(masked(g, bits, "grad", work), alpha=-lr * masking.scale)
    else:
        p.add_(g, alpha=-lr)
    if outside:
        p.add_(apart, alpha=-lr * weight_decay)
    if p is not param:
        param.copy_(p)
