"""ChildTuning inside fairseq: its precision wrappers, mask files, checkpoints, runs of fairseq-train."""

import os

import harness
import numpy as np
import pytest
import torch
from child_tuning_helpers import (
    ADAM,
    MODES,
    NAMES,
    SHAPES,
    build_mode,
    config,
    dtype_of,
    fixed,
    fixed_masks,
    keyed,
    parameters,
    run,
    train_mode,
    write_mask,
)
from fairseq import optim

import fairseq_maskplugins  # noqa: F401  (registers)
from fairseq_maskplugins.child_tuning import maskfile
from fairseq_maskplugins.child_tuning.optim import ChildAdam, build
from fairseq_maskplugins.child_tuning.options import build_masking
from fairseq_maskplugins.compat import has_fused_adam
from fairseq_maskplugins.errors import UsageError


@pytest.mark.parametrize("mode", MODES)
def test_d_over_100_updates_moves_the_child_alone(mode, tmp_path, monkeypatch):
    selected = fixed_masks()
    selected[1] = None
    path = write_mask(tmp_path / "mask.safetensors", selected)
    params = parameters(dtype=dtype_of(mode))
    before = [p.detach().clone() for p in params]
    options = dict(child_tuning_mode="D", child_tuning_mask=path)
    train_mode(mode, params, build_mode(mode, params, monkeypatch, **options), 100)
    for p, old, mask in zip(params, before, selected):
        if mask is not None:
            assert torch.equal(p[~mask], old[~mask])
        assert (p != old)[torch.ones_like(p, dtype=torch.bool) if mask is None else mask].float().sum() > 0


@pytest.mark.parametrize("mode", MODES)
def test_masks_are_the_same_in_every_precision(mode, monkeypatch):
    """The first update of a gradient of ones, without momentum's memory, moves exactly what F selects."""
    moved = {}
    for each in ("fp32", mode):
        params = parameters(dtype=dtype_of(each))
        before = [p.detach().clone() for p in params]
        optimizer = build_mode(each, params, monkeypatch, reserve_p=0.3)
        # large steps, so that half precision shows them
        optimizer.set_lr(1.0)
        train_mode(each, params, optimizer, 1, ones=True)  # small gradients vanish in half precision
        moved[each] = [p != old for p, old in zip(params, before)]
    assert all(torch.equal(a, b) for a, b in zip(moved["fp32"], moved[mode]))


@pytest.mark.parametrize("mode", ["fp16", "memory_efficient_fp16", "bf16"])
def test_half_precision_resumes(mode, monkeypatch):
    finished = []
    for stop in (False, True):
        params = parameters(dtype=dtype_of(mode))
        optimizer = build_mode(mode, params, monkeypatch, reserve_p=0.3)
        train_mode(mode, params, optimizer, 2)
        if stop:
            saved = optimizer.state_dict()
            if mode != "memory_efficient_fp16":  # a checkpoint holds weights in half precision, the copy comes from them
                masters = optimizer.fp32_params
                masters = list(masters.values()) if isinstance(masters, dict) else masters
                copies = [x.detach().clone() for x in masters]
            optimizer = build_mode(mode, params, monkeypatch, reserve_p=0.3)
            optimizer.load_state_dict(saved)
            if mode != "memory_efficient_fp16":
                masters = optimizer.fp32_params
                for x, y in zip(list(masters.values()) if isinstance(masters, dict) else masters, copies):
                    x.data.copy_(y)
        train_mode(mode, params, optimizer, 2)
        finished.append(params)
    assert all(torch.equal(x, y) for x, y in zip(*finished))


def test_a_plain_adam_state_under_fp16_is_refused_with_its_remedy(monkeypatch):
    params = parameters(dtype=torch.float16)
    stock = build_mode("fp16", params, monkeypatch, name="adam")
    train_mode("fp16", params, stock, 1)
    ours = build_mode("fp16", params, monkeypatch, reserve_p=0.3)
    with pytest.raises(UsageError, match="--reset-optimizer"):
        ours.load_state_dict(stock.state_dict())
    # and back: the states are the same, whole; it goes on warm
    train_mode("fp16", params, ours, 1)
    stock.load_state_dict(ours.state_dict())
    (moments,) = stock.optimizer.state.values()
    assert moments["exp_avg"].abs().sum() > 0 and moments["step"] == 1


@pytest.mark.parametrize("mode", ["F", "D"])
@pytest.mark.parametrize("target", ["gradient", "update"])
@pytest.mark.parametrize("decay", ["all", "child"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_fused_step_is_the_exact_one_but_for_rounding(mode, target, decay, dtype):
    results = []
    for fused in (False, has_fused_adam(torch.device("cpu"))):
        params = parameters(dtype=dtype)
        masking = build_masking(mode, 0.3, target, False, decay)
        make = keyed(7, 0.3) if mode == "F" else fixed(fixed_masks())
        for p in params:
            p.data.view(-1)[:50] = -0.0
        before = [p.detach().clone() for p in params]
        run(build(ChildAdam, params, make, masking, fused, **ADAM), params, 20)
        results.append(params)
    for x, y, old, mask in zip(*results, before, fixed_masks()):
        close = dict(rtol=1e-4, atol=1e-5) if dtype == torch.float32 else dict(rtol=0.02, atol=0.02)
        torch.testing.assert_close(x, y, **close)
        if mode == "D" and decay == "child":
            assert torch.equal(y[~mask].view(torch.uint8), old[~mask].view(torch.uint8))


def test_the_fused_step_is_taken_where_torch_has_one():
    def fused(**options):
        return optim.build_optimizer(config(**options).optimizer, parameters()).optimizer.fused

    assert fused() == fused(child_tuning_target="update") == has_fused_adam(torch.device("cpu"))
    assert not fused(child_tuning_exact=True) and not fused(reserve_p=1.0) and not fused(name="child_tuning_sgd")


class FlatParameter(torch.nn.Parameter):
    pass


@pytest.mark.parametrize(
    "options,message",
    [
        ({"reserve_p": 0.0}, r"--reserve-p must lie in \(0, 1\], got 0"),
        ({"child_tuning_mode": "D"}, "--child-tuning-mode D needs --child-tuning-mask FILE"),
        ({"child_tuning_mask": "x"}, "--child-tuning-mask is for --child-tuning-mode D"),
        ({"child_tuning_mode": "D", "child_tuning_mask": "/none"}, "/none: no such file"),
        ({"fp16_adam_stats": True}, "--fp16-adam-stats"),
        ({"adam_betas": "0.9"}, "--adam-betas must be a pair of numbers"),
        ({"adam_eps": 0.0}, "--adam-eps must be above 0"),
        ({"adam_betas": "(0.9, 1.0)"}, r"--adam-betas must lie in \[0, 1\), got \(0.9, 1.0\)"),
        ({"adam_betas": "(-0.5, 0.9)"}, r"--adam-betas must lie in \[0, 1\)"),
        ({"weight_decay": float("nan")}, "--weight-decay must be a number of 0 or more, got nan"),
        ({"name": "child_tuning_sgd", "momentum": 7.0}, r"--momentum must be a number in \[0, 1\], got 7"),
    ],
)
def test_bad_options_stop_with_one_line(options, message):
    with pytest.raises(UsageError, match=message) as raised:
        optim.build_optimizer(config(**options).optimizer, parameters())
    assert "\n" not in str(raised.value)


def test_sharded_parameters_are_refused_by_name():
    cfg = config()
    cfg.distributed_training.ddp_backend = "fully_sharded"
    with pytest.raises(UsageError, match="--ddp-backend fully_sharded"):
        optim.build_optimizer(cfg.optimizer, parameters())
    with pytest.raises(UsageError, match="--ddp-backend fully_sharded"):
        optim.build_optimizer(config().optimizer, [FlatParameter(torch.zeros(3))])


@pytest.mark.parametrize("mode", ["fp32", "fp16"])
def test_a_mask_for_another_model_names_the_first_difference(mode, tmp_path, monkeypatch):
    shapes = [*SHAPES[:2], (13, 10), *SHAPES[3:]]  # as many entries
    path = write_mask(tmp_path / "m", fixed_masks(shapes=shapes), shapes=shapes)
    options = dict(child_tuning_mode="D", child_tuning_mask=path)
    if mode != "fp16":  # of a flat copy only the size is known
        with pytest.raises(
            UsageError, match=r"parameter 2 is layer.2.weight of shape \[13, 10\] in the mask and of shape \[13, 5"
        ):
            build_mode(mode, parameters(dtype=dtype_of(mode)), monkeypatch, **options)
    path = write_mask(tmp_path / "short", fixed_masks()[:4], NAMES[:4], SHAPES[:4])
    options = dict(child_tuning_mode="D", child_tuning_mask=path)
    rule = (
        "the mask is for .* entries, the model has 149938"
        if mode == "fp16"
        else (r"agree on 4 parameters, after which the model goes on with .* \[260, 530\]")
    )
    with pytest.raises(UsageError, match=rule):
        build_mode(mode, parameters(dtype=dtype_of(mode)), monkeypatch, **options)


def test_a_flat_copy_of_unknown_parts_is_checked_by_its_size(tmp_path):
    path = write_mask(tmp_path / "m", fixed_masks())
    options = dict(child_tuning_mode="D", child_tuning_mask=path)
    with pytest.raises(UsageError, match="the mask is for 149938 entries, the model has 10"):
        optim.build_optimizer(config(**options).optimizer, [torch.nn.Parameter(torch.zeros(10))])


def test_another_share_than_the_masks_is_refused(tmp_path):
    path = write_mask(tmp_path / "m", fixed_masks())
    options = dict(child_tuning_mode="D", child_tuning_mask=path)
    with pytest.raises(UsageError, match="--reserve-p is 0.2 and .* was selected with 0.3"):
        optim.build_optimizer(config(reserve_p=0.2, **options).optimizer, parameters())


def test_damaged_mask_files(tmp_path):
    path = write_mask(tmp_path / "m", fixed_masks())
    content = open(path, "rb").read()
    for length in (0, 5, 200, len(content) // 2, len(content) - 1):
        with open(path, "wb") as file:
            file.write(content[:length])
        with pytest.raises(UsageError, match="damaged or cut off|not a file of") as raised:
            maskfile.read(path, "mask")
        assert "\n" not in str(raised.value)
    maskfile.write(path, "fisher", {"a": np.zeros(2, dtype=np.float32)}, {"parameters": []})
    with pytest.raises(UsageError, match="holds a fisher, expected a mask"):
        maskfile.read(path, "mask")
    assert os.listdir(tmp_path) == ["m"]


def test_f_on_two_ranks_over_50_updates_with_dropout(corpus, tmp_path):
    options = "--optimizer child_tuning_adam --reserve-p 0.3 --max-update 50 --save-interval-updates 25".split()
    logs = harness.train_two_ranks(corpus / "bin", [tmp_path / "0", tmp_path / "1"], *options)
    assert logs[0].digests["50"] == logs[1].digests["50"]


def test_p_of_one_trains_as_adam_to_the_bit_and_switching_is_noticed(corpus, tmp_path):
    short = ["--max-update", 3, "--update-freq", 2]
    harness.train(corpus / "bin", tmp_path / "adam", *short)
    amp = ["--optimizer", "child_tuning_adam"]
    harness.train(corpus / "bin", tmp_path / "ours", *short, *amp, "--reserve-p", 1)
    harness.assert_same_weights(*(tmp_path / run / "checkpoint_last.pt" for run in ("adam", "ours")))
    for folder, options in (("adam", amp), ("ours", [])):
        switched = harness.train(corpus / "bin", tmp_path / folder, *options, "--max-update", 6, check=False)
        last = switched.text.strip().splitlines()[-1]
        assert switched.returncode == 1 and "please reset the optimizer (--reset-optimizer)" in last
