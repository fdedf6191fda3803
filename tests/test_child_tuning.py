"""ChildTuning's steps: against plain references, against fairseq to the bit, in every kind of optimizer state."""

import itertools

import pytest
import torch
from child_tuning_helpers import ADAM, SHAPES, fixed, fixed_masks, gradient, keyed, parameters, run, split, whole_mask
from fairseq.optim.adam import Adam
from reference import child_tuning as reference

from fairseq_maskplugins.child_tuning.masks import KeyedMask
from fairseq_maskplugins.child_tuning.optim import ChildAdam, ChildSGD, build
from fairseq_maskplugins.child_tuning.options import build_masking
from fairseq_maskplugins.errors import UsageError

CASES = list(itertools.product("FD", ("gradient", "update"), ("all", "child"), (False, True)))


@pytest.mark.parametrize("mode,target,decay,no_rescale", CASES)
@pytest.mark.parametrize("algorithm", ["adam", "sgd"])
def test_against_the_reference(algorithm, mode, target, decay, no_rescale):
    p, steps = 0.3, 6
    selected = fixed_masks()
    make = keyed(7, p) if mode == "F" else fixed(selected)
    masking = build_masking(mode, p, target, no_rescale, decay)
    params = parameters()
    total = sum(x.numel() for x in params)

    def masks(update, index):
        return (split(whole_mask(KeyedMask(7, p, total), update)) if mode == "F" else selected)[index].float()

    common = dict(target=target, fixed=mode == "D", decay_all=decay == "all", scale=1.0 if no_rescale else 1 / p)
    grads = lambda update, index: gradient(update, index, SHAPES[index])  # noqa: E731
    start = [x.detach().clone() for x in params]
    if algorithm == "adam":
        optimizer = build(ChildAdam, params, make, masking, **ADAM)
        expected = reference.adam(start, grads, masks, steps, 1e-2, (0.9, 0.98), 1e-8, 0.1, p, **common)
    else:
        optimizer = build(ChildSGD, params, make, masking, lr=0.05, momentum=0.9, weight_decay=0.1)
        expected = reference.sgd(start, grads, masks, steps, 0.05, 0.9, 0.1, **common)
    run(optimizer, params, steps)
    for x, y in zip(params, expected):
        torch.testing.assert_close(x.detach(), y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("eps", [1e-8, 1e-15])
def test_with_everything_selected_adam_is_fairseqs_to_the_bit(eps):
    options = {**ADAM, "eps": eps}
    ours, theirs = parameters(), parameters()
    selected = [torch.ones(shape, dtype=torch.bool) for shape in SHAPES]
    for make, mode in ((keyed(1, 1.0), "F"), (fixed(selected), "D")):
        mine, stock = build(ChildAdam, ours, make, build_masking(mode, 1.0, "gradient", False, None), **options), None
        stock = Adam(theirs, **options)
        for update in range(50):
            for index, (x, y) in enumerate(zip(ours, theirs)):
                x.grad = gradient(update, index, x.shape) * (torch.arange(x.numel()).view(x.shape) % 3 > 0)
                y.grad = x.grad.clone()
            mine.step(), stock.step()
        assert all(torch.equal(x, y) for x, y in zip(ours, theirs))
        assert all(torch.equal(mine.state[x]["exp_avg_sq"], stock.state[y]["exp_avg_sq"]) for x, y in zip(ours, theirs))


def test_an_eps_too_small_to_absorb_anything_is_added_to_a_square_root_of_zero():
    """The square of a gradient of 1e-24 is 0, its mean is not: the step is that mean by eps alone."""
    ours, theirs = (torch.nn.Parameter(torch.zeros(100)) for _ in range(2))
    ours.grad, theirs.grad = torch.full((100,), 1e-24), torch.full((100,), 1e-24)
    options = dict(lr=1.0, eps=1e-15)
    build(ChildAdam, [ours], keyed(1, 1.0), build_masking("F", 1.0, "gradient", False, None), **options).step()
    Adam([theirs], **options).step()
    assert torch.equal(ours, theirs) and (ours != 0).all()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_with_everything_selected_sgd_is_torchs_to_the_bit(momentum):
    ours, theirs = parameters(), parameters()
    options = dict(lr=0.1, momentum=momentum, weight_decay=0.01)
    mine = build(ChildSGD, ours, keyed(1, 1.0), build_masking("F", 1.0, "gradient", False, None), **options)
    run(mine, ours, 50), run(torch.optim.SGD(theirs, **options), theirs, 50)
    assert all(torch.equal(x, y) for x, y in zip(ours, theirs))


def test_update_target_moves_what_is_selected_and_nothing_else():
    params = parameters()
    mask = KeyedMask(7, 0.3, sum(x.numel() for x in params))
    optimizer = build(ChildAdam, params, lambda _: mask, build_masking("F", 0.3, "update", False, "child"), **ADAM)
    for update in range(3):  # with momentum from the second on
        before = [x.detach().clone() for x in params]
        run(optimizer, params, 1, start=update)
        for x, y, selected in zip(params, before, split(whole_mask(mask, update))):
            assert torch.equal(x != y, selected)


def test_resume_continues_the_masks():
    masking = build_masking("F", 0.3, "gradient", False, None)
    whole, first = parameters(), parameters()
    run(build(ChildAdam, whole, keyed(7, 0.3), masking, **ADAM), whole, 6)
    optimizer = build(ChildAdam, first, keyed(7, 0.3), masking, **ADAM)
    run(optimizer, first, 3)
    again = build(ChildAdam, first, keyed(7, 0.3), masking, **ADAM)
    again.load_state_dict(optimizer.state_dict())
    run(again, first, 3, start=3)
    assert all(torch.equal(x, y) for x, y in zip(whole, first))


def test_parameter_groups_and_parameters_without_gradient():
    one, two = parameters(), parameters()
    masking = build_masking("F", 0.3, "gradient", False, None)
    grouped = [{"params": two[:2]}, {"params": two[2:], "lr": 1e-2}]
    a, b = (build(ChildAdam, one, keyed(7, 0.3), masking, **ADAM), build(ChildAdam, grouped, keyed(7, 0.3), masking, **ADAM))
    for update in range(3):
        for params, optimizer in ((one, a), (two, b)):
            for index, p in enumerate(params):
                p.grad = None if index == 1 else gradient(update, index, p.shape)
            optimizer.step()
    assert all(torch.equal(x, y) for x, y in zip(one, two))
    assert torch.equal(one[1], parameters()[1])


def test_a_part_of_the_parameters_keeps_its_positions():
    """ZeRO (``--zero-sharding os``) builds a second optimizer of the same class for each rank's share of the parameters,
    and resumes by putting states and options of groups into it, without its ``load_state_dict``."""
    whole, parts = parameters(), parameters()
    masking = build_masking("F", 0.3, "gradient", False, None)
    run(build(ChildAdam, whole, keyed(7, 0.3), masking, **ADAM), whole, 3)
    cls = type(build(ChildAdam, parts, keyed(7, 0.3), masking, **ADAM))
    ranks = [cls(parts[1::2], **ADAM), cls(parts[::2], **ADAM)]
    for update in range(3):
        if update == 2:
            resumed = [cls(parts[1::2], **ADAM), cls(parts[::2], **ADAM)]
            for old, new in zip(ranks, resumed):
                new.state.update({p: dict(state) for p, state in old.state.items()})
                for source, target in zip(old.param_groups, new.param_groups):
                    target.update({key: value for key, value in source.items() if key != "params"})
            ranks = resumed
        for index, p in enumerate(parts):
            p.grad = gradient(update, index, p.shape)
        for optimizer in ranks:
            optimizer.step()
    assert all(torch.equal(x, y) for x, y in zip(whole, parts))


def test_strided_parameters():
    shape, selected = [(30, 20)], fixed_masks(shapes=[(30, 20)])
    plain = parameters(shape)
    strided = [torch.nn.Parameter(plain[0].detach().clone().t().contiguous().t())]
    assert not strided[0].is_contiguous()
    masking = build_masking("D", 0.3, "gradient", False, None)
    for params in (plain, strided):
        run(build(ChildAdam, params, fixed(selected, shape), masking, **ADAM), params, 3)
    assert torch.equal(plain[0], strided[0])


@pytest.mark.parametrize("cls", [ChildAdam, ChildSGD])
@pytest.mark.parametrize("target", ["gradient", "update"])
def test_d_holds_still_whatever_the_momentum_says(cls, target):
    options = {"lr": 1e-2} if cls is ChildAdam else {"lr": 1e-2, "momentum": 0.9}
    params, selected = parameters(), fixed_masks()
    warm = build(cls, params, keyed(7, 1.0), build_masking("F", 1.0, "gradient", False, None), **options)
    run(warm, params, 5)
    optimizer = build(cls, params, fixed(selected), build_masking("D", 0.3, target, False, None), **options)
    optimizer.load_state_dict(warm.state_dict())
    before = [x.detach().clone() for x in params]
    run(optimizer, params, 20, start=5)
    for x, y, mask in zip(params, before, selected):
        assert torch.equal(x[~mask], y[~mask])
        assert (x[mask] != y[mask]).all()


def test_what_is_not_covered_trains_as_if_there_were_no_mask():
    ours, theirs, selected = parameters(), parameters(), fixed_masks()
    selected[1] = selected[4] = None
    run(build(ChildAdam, ours, fixed(selected), build_masking("D", 0.3, "gradient", False, None), **ADAM), ours, 5)
    run(Adam(theirs, **ADAM), theirs, 5)
    assert [torch.equal(x, y) for x, y in zip(ours, theirs)] == [False, True, False, False, True]


def test_a_state_of_another_optimizer_is_refused():
    """Under ``--fp16`` and ``--amp`` fairseq does not look at the optimizer's name."""
    masking = build_masking("F", 0.3, "gradient", False, None)
    written = {}
    for name, make in (
        ("adam", lambda params: Adam(params, **ADAM)),
        ("child_tuning_adam", lambda params: build(ChildAdam, params, keyed(1, 0.3), masking, **ADAM)),
        ("child_tuning_sgd", lambda params: build(ChildSGD, params, keyed(1, 0.3), masking, momentum=0.9)),
    ):
        params = parameters()
        optimizer = make(params)
        run(optimizer, params, 1)
        written[name] = optimizer.state_dict()
    for cls in (ChildAdam, ChildSGD):
        for name, state in written.items():
            optimizer = build(cls, parameters(), keyed(1, 0.3), masking)
            if name == cls.option:
                optimizer.load_state_dict(state)
            else:
                with pytest.raises(UsageError, match=f"not written by {cls.option}; with --reset-optimizer"):
                    optimizer.load_state_dict(state)


@pytest.mark.parametrize(
    "options,message",
    [
        (("F", 0, "gradient", False, None), r"--reserve-p must lie in \(0, 1\], got 0"),
        (("F", 1.5, "gradient", False, None), r"--reserve-p must lie in \(0, 1\], got 1.5"),
        (("D ", 0.3, "gradient", False, None), "--child-tuning-mode must be one of F, D, got 'D '"),
        (("F", 0.3, "step", False, None), "--child-tuning-target must be one of gradient, update, got 'step'"),
        (("F", 0.3, "update", False, "none"), "--child-tuning-decay must be one of all, child, got 'none'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(UsageError, match=message):
        build_masking(*options)


def test_theory_sgd_keeps_the_mean_and_adds_variance():
    """Source: var = s^2 + (1-p)/p (mu^2 + s^2) for a gradient of mean mu and variance s^2, with lr 1."""
    n, p, mu, s = 1 << 19, 0.3, 0.5, 1.0
    g = mu + s * torch.randn(n, generator=torch.Generator().manual_seed(3))
    params = [torch.nn.Parameter(torch.zeros(n))]
    params[0].grad = g
    build(ChildSGD, params, keyed(5, p), build_masking("F", p, "gradient", False, None), lr=1.0).step()
    step = -params[0].detach().double()
    variance = s**2 + (1 - p) / p * (mu**2 + s**2)
    assert abs(step.mean().item() - mu) < 5 * (variance / n) ** 0.5
    # the fourth central moment of M g / p bounds the spread of the variance; for these numbers it is below 90
    assert abs(step.var().item() - variance) < 5 * (90 / n) ** 0.5


def test_theory_adam_shrinks_the_gradient_target_by_the_root_of_p():
    """A constant gradient: m -> mu, v -> mu^2 / p, so the step is lr * sqrt(p) on average, the update target's lr."""
    n, p, steps = 1 << 15, 0.25, 60
    moved = {}
    for target in ("gradient", "update"):
        params = [torch.nn.Parameter(torch.zeros(n))]
        optimizer = build(ChildAdam, params, keyed(5, p), build_masking("F", p, target, False, None), lr=1.0, betas=(0.9, 0.9999))
        for update in range(600 + steps):
            params[0].grad = torch.full((n,), 0.5)
            optimizer.step()
            if update == 599:
                before = params[0].detach().clone()
        moved[target] = (before - params[0].detach()).double().mean().item() / steps
    # v averages some 640 draws: its relative deviation, 0.07, curves the mean of 1 / sqrt(v) up by 3/8 of its square
    assert abs(moved["gradient"] / p**0.5 - 1) < 0.01
    assert abs(moved["update"] - 1) < 0.01
