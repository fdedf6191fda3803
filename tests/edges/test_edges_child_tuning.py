"""ChildTuning at the ends of what numbers can say: shares next to 0 and 1, gradients and weights that half precision
barely holds, tiny eps, masks of everything and of nothing."""

import itertools
import math

import pytest
import torch
from child_tuning_helpers import SHAPES, fixed, keyed, parameters, whole_mask

from fairseq_maskplugins.child_tuning.masks import KeyedMask, grid_share
from fairseq_maskplugins.child_tuning.optim import ChildAdam, ChildSGD, build
from fairseq_maskplugins.child_tuning.options import build_masking
from fairseq_maskplugins.compat import has_fused_adam
from fairseq_maskplugins.errors import UsageError

TYPES = (torch.float32, torch.float16, torch.bfloat16)
FUSED = (False, True) if has_fused_adam(torch.device("cpu")) else (False,)
GRADIENTS = (6e-8, -6e-8, 6e4, -6e4, 0.0)  # the smallest and nearly the largest of half precision


@pytest.mark.parametrize("p", [5e-324, 1e-300, 1e-12, 1e-9, 2.4e-10, 1e-4, 0.3, 1 - 1e-9, 1 - 1e-12, 1.0])
def test_f_rescales_by_the_share_that_it_keeps(p):
    """Masks know shares in steps of 2^-32. With 1 / p a share of 1e-12 would have made gradients 233 times too large."""
    mask, masking = KeyedMask(1, p, 100), build_masking("F", p, "gradient", False, None)
    kept = (mask.threshold + 2**31) / 2**32  # of the 2^32 words that are compared with the threshold
    assert 0 < kept <= 1 and masking.scale == 1 / kept == 1 / grid_share(p)
    assert abs(kept - p) <= 2**-32
    assert build_masking("F", p, "gradient", True, None).scale == 1
    assert build_masking("D", 0.3, "gradient", False, None).scale == 1 / 0.3


def test_the_smallest_share_selects_one_word_in_all():
    """At 2^-32 what is selected is the one word of the lowest value: hardly ever any, and never all."""
    n = 1 << 18
    assert whole_mask(KeyedMask(1, 1e-300, n), 0).sum() <= 2
    assert whole_mask(KeyedMask(1, 1 - 2**-32, n), 0).sum() >= n - 2
    assert list(KeyedMask(1, 1 - 1e-12, n).pieces(0, n, torch.device("cpu")))[0][2] is False  # everything: no mask


def adam_step(p, g, m, lr, eps, scale, target):
    """The first step of Adam from zero moments in Python's floats: entry ``p``, gradient ``g``, mask ``m``."""
    beta1, beta2 = 0.9, 0.98
    if target == "gradient":
        g = g * m * scale
    moved = lr * math.sqrt(1 - beta2) / (1 - beta1) * ((1 - beta1) * g) / (math.sqrt((1 - beta2) * g * g) + eps)
    return p - (moved * m * scale if target == "update" else moved)


@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("eps", [1e-8, 1e-15, 1.2e-38])
@pytest.mark.parametrize("target", ["gradient", "update"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_one_step_of_extreme_gradients(dtype, target, eps, fused):
    lr, p = 1e-3, 0.25
    for g in GRADIENTS:
        param = torch.nn.Parameter(torch.linspace(-2, 2, 400).to(dtype))
        before = param.detach().clone()
        param.grad = torch.full((400,), g).to(dtype)
        masking = build_masking("F", p, target, False, None, eps)
        build(ChildAdam, [param], keyed(7, p), masking, fused, lr=lr, betas=(0.9, 0.98), eps=eps).step()
        chosen = whole_mask(KeyedMask(7, p, 400), 0)
        expected = [
            adam_step(float(x), float(param.grad[0]), float(m), lr, eps, 1 / p, target) if g else float(x)
            for x, m in zip(before, chosen)
        ]
        bits = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
        torch.testing.assert_close(param.detach().double(), torch.tensor(expected).double(), rtol=bits, atol=bits)
        assert torch.equal(param[~chosen], before[~chosen])


@pytest.mark.parametrize("cls", [ChildAdam, ChildSGD])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_extreme_gradients_and_weights_over_many_updates(dtype, cls):
    """6e4 and 6e-8 in turn, at the smallest share and others: what is not selected stands, nothing becomes NaN."""
    options = {"momentum": 0.9, "lr": 1e-6} if cls is ChildSGD else {"lr": 1e-3}
    for p, target in itertools.product((1e-9, 1e-4, 0.3, 1 - 1e-9, 1.0), ("gradient", "update")):
        param = torch.nn.Parameter(torch.tensor([65504.0, -65504.0, 6e-8, 0.0, 1.0] * 200).to(dtype))
        masking = build_masking("F", p, target, False, None)
        optimizer = build(cls, [param], keyed(3, p), masking, **options)
        for update in range(30):
            param.grad = torch.tensor(GRADIENTS * 200).roll(update).to(dtype)
            before = param.detach().clone()
            optimizer.step()
            if update == 0 or target == "update":
                chosen = whole_mask(KeyedMask(3, p, 1000), update)
                assert torch.equal(param[~chosen], before[~chosen])
        assert not torch.isnan(param).any()


@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("decay", ["all", "child"])
@pytest.mark.parametrize("target", ["gradient", "update"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("cls", [ChildAdam, ChildSGD])
def test_d_with_nothing_selected_stands_still(cls, dtype, target, decay, fused):
    """Whatever the gradients are, infinite ones too; weight decay reaches all where it is asked to. NaN may only come
    through a masked gradient: fairseq stops, or skips the update, before an optimizer sees one."""
    params = parameters(dtype=dtype)
    before = [x.detach().clone() for x in params]
    nothing = [torch.zeros(shape, dtype=torch.bool) for shape in SHAPES]
    masking = build_masking("D", 0.3, target, False, decay)
    options = dict(lr=0.1, weight_decay=0.01, **({"momentum": 0.9} if cls is ChildSGD else {}))
    optimizer = build(cls, params, fixed(nothing), masking, fused and cls is ChildAdam, **options)
    for value in (1.0, 6e4, math.inf, math.nan if target == "gradient" else -math.inf):
        for x in params:
            x.grad = torch.full_like(x, value)
        optimizer.step()
    for x, old in zip(params, before):
        if decay == "child":
            assert torch.equal(x, old)
        elif target == "gradient" or cls is ChildAdam:
            close = 1e-6 if dtype == torch.float32 else 0.02
            torch.testing.assert_close(x.float(), old.float() * (1 - 0.1 * 0.01) ** 4, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("target", ["gradient", "update"])
def test_d_with_everything_selected_is_no_mask_at_all(dtype, target):
    found = []
    for selected in ([torch.ones(shape, dtype=torch.bool) for shape in SHAPES], [None] * len(SHAPES)):
        params = parameters(dtype=dtype)
        optimizer = build(
            ChildAdam, params, fixed(selected), build_masking("D", 1.0, target, False, None), lr=1e-2, weight_decay=0.1
        )
        for update in range(5):
            for x in params:
                x.grad = torch.full_like(x, GRADIENTS[update])
            optimizer.step()
        found.append(params)
    assert all(torch.equal(x, y) for x, y in zip(*found))


@pytest.mark.parametrize("eps", [0.0, -1e-8, 5e-324, 1e-50, 1e-45, float("nan")])
def test_an_eps_that_is_zero_in_float32_is_refused(eps):
    """It is added to a square root of zero, in float32."""
    with pytest.raises(UsageError, match=r"--adam-eps must be above 0 with ChildTuning, in float32 too \(1.2e-38 or more\)"):
        build_masking("F", 0.3, "gradient", False, None, eps)


@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("p", [0.3, 1.0])
def test_entries_that_never_have_a_gradient_do_not_move_at_the_smallest_eps(p, fused):
    param = torch.nn.Parameter(torch.ones(100))
    optimizer = build(ChildAdam, [param], keyed(1, p), build_masking("F", p, "gradient", False, None), fused, eps=1.2e-38)
    for _ in range(3):
        param.grad = torch.zeros(100)
        optimizer.step()
    assert torch.equal(param, torch.ones(100))


@pytest.mark.parametrize("cls", [ChildAdam, ChildSGD])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_half_precision_parameters_resume_to_the_bit(dtype, cls):
    """torch casts a loaded state to the parameters' types: squares of gradients of 6e-5 would be 0 in half precision."""
    options = {"momentum": 0.9, "lr": 0.1} if cls is ChildSGD else {"lr": 1e-3}
    finished = []
    for resumed in (False, True):
        params = parameters(dtype=dtype)
        masking = build_masking("F", 0.3, "gradient", False, None)
        optimizer = build(cls, params, keyed(7, 0.3), masking, **options)
        for update in range(6):
            if resumed and update == 3:
                state = optimizer.state_dict()
                optimizer = build(cls, params, keyed(7, 0.3), masking, **options)
                optimizer.load_state_dict(state)
            for x in params:
                x.grad = torch.full_like(x, 6e-5 * (1 + update))
            optimizer.step()
        finished.append(params)
    assert all(torch.equal(x, y) for x, y in zip(*finished))
