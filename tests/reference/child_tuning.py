"""ChildTuning written out plainly: one position at a time for masks, whole tensors and formulas for the steps."""

import math

import numpy as np
import torch

from fairseq_maskplugins.rng import bits, make_keys


def selected_at(seed, update, position, reserve_p, cell_size=1 << 17):
    """Whether F selects a position, by Python integers."""

    def signed(word):
        word &= 0xFFFFFFFF
        return word - (1 << 32) if word >> 31 else word

    def upper(z):
        return int(z[0]) >> 32

    cell, offset = divmod(position, cell_size)
    a, b = (upper(lane) for lane in make_keys((seed, update, cell), "child_tuning"))
    h = upper(bits(make_keys((0,), "child_tuning_table"), np.array([offset])))
    x = signed((h ^ a) * (b | 1))
    x ^= x >> 15  # arithmetic shift
    return signed(x * 0x846CA68B) + 2**31 < round(reserve_p * 2**32)


def adam(params, grads, masks, steps, lr, betas, eps, wd, p, target, fixed, decay_all, scale):
    """Adam with decoupled decay over ``steps`` updates.

    params: list of tensors; grads, masks: functions (update, index) -> tensor, of 0 and 1 for masks.
    """
    params = [x.clone() for x in params]
    m, v = ([torch.zeros_like(x) for x in params] for _ in range(2))
    for t in range(steps):
        for i, theta in enumerate(params):
            M, g = masks(t, i), grads(t, i)
            if target == "gradient":
                g = g * M * scale
            m[i] = m[i] * betas[0] + (1 - betas[0]) * g
            v[i] = v[i] * betas[1] + (1 - betas[1]) * g * g
            lr_t = lr * math.sqrt(1 - betas[1] ** (t + 1)) / (1 - betas[0] ** (t + 1))
            step = lr_t * m[i] / (v[i].sqrt() + eps)
            if target == "update":
                step = step * M * scale
            elif fixed:
                step = step * M
            theta -= lr * wd * theta * (1 if decay_all else M)
            theta -= step
    return params


def sgd(params, grads, masks, steps, lr, momentum, wd, target, fixed, decay_all, scale):
    """SGD with momentum and coupled decay, as :func:`adam`."""
    params = [x.clone() for x in params]
    buffers = [torch.zeros_like(x) for x in params]
    for t in range(steps):
        for i, theta in enumerate(params):
            M, g = masks(t, i), grads(t, i)
            outside = lr * wd * theta * (1 - M) if fixed and decay_all else 0
            if target == "update":
                buffers[i] = momentum * buffers[i] + g + wd * theta
                theta -= lr * buffers[i] * M * scale + outside
            else:
                decay = wd * theta * (M if fixed or not decay_all else 1)
                buffers[i] = momentum * buffers[i] + g * M * scale + decay
                theta -= lr * buffers[i] + outside
    return params
