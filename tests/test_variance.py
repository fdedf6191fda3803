"""The variance decomposition: exact on a toy by enumeration, the theorem's claim, and the command."""

import json

import harness
import numpy as np
import pytest
import torch
from scipy import stats

from fairseq_maskplugins.checkpoints import read_checkpoint
from fairseq_maskplugins.cli import main
from fairseq_maskplugins.decoupled_mlm.rates import Rates
from fairseq_maskplugins.errors import UsageError
from fairseq_maskplugins.mapnet.proposal import draw_pair, log_inclusion, propose, weigh
from fairseq_maskplugins.rng import SequenceDraws
from fairseq_maskplugins.variance.gradients import _masking
from fairseq_maskplugins.variance.moments import decompose, summarise, t_quantile

ROWS, OUTCOMES, WIDTH = 7, 5, 6


def population():
    """A gradient for every row and mask of a small world."""
    rng = np.random.RandomState(0)
    return rng.randn(ROWS, 1, WIDTH) + 1.5 * rng.randn(ROWS, OUTCOMES, WIDTH)


def exact_terms(g):
    """By enumeration of all rows and masks, in loops."""
    means = [sum(row) / OUTCOMES for row in g]
    whole = sum(means) / ROWS
    data = sum(float((m - whole) @ (m - whole)) for m in means) / ROWS
    mask = sum(float((x - m) @ (x - m)) for row, m in zip(g, means) for x in row) / (ROWS * OUTCOMES)
    total = sum(float((x - whole) @ (x - whole)) for row in g for x in row) / (ROWS * OUTCOMES)
    assert total == pytest.approx(data + mask)
    return {"data": data, "mask": mask, "total": total}


def test_estimates_are_unbiased_and_add_up():
    g = population()
    exact = exact_terms(g)
    draws = SequenceDraws(1, 0, np.arange(4000))
    which = (draws.uniform("row", 1)[:, 0] * ROWS).astype(int)
    masks = (draws.uniform("mask", 3) * OUTCOMES).astype(int)
    found = decompose(lambda i, r: (torch.from_numpy(g[which[i], masks[i, r]]), float(which[i])), range(4000), 3, 40)
    for term in ("data", "mask", "total"):
        # 95% intervals, so twice their width: a wrong divisor is off by far more
        assert abs(found[term].value - exact[term]) < 2 * found[term].error < 0.2 * exact[term], term
    both = found["data"].value + found["mask"].value
    assert abs(both - found["total"].value) < 2 * found["total"].error
    assert found["loss"].value == pytest.approx(which.mean())


def test_data_term_is_zero_for_equal_rows():
    g = population()[:1]
    masks = (SequenceDraws(1, 0, np.arange(1000)).uniform("mask", 2) * OUTCOMES).astype(int)
    found = decompose(lambda i, r: (torch.from_numpy(g[0, masks[i, r]]), 0.0), range(1000), 2, 20)
    assert abs(found["data"].value) < 2 * found["data"].error and found["mask"].value > 10 * found["mask"].error


def mask_terms(uniform_mix):
    """Decomposition on rows of 16 positions whose gradients are independent, masks of 6; ``q`` is a mixture of the
    gradients' norms and the uniform proposal."""
    rows, n, k = 240, 16, 6
    generator = torch.Generator().manual_seed(3)
    size = torch.exp(0.8 * torch.randn(rows, n, generator=generator))
    g = size[:, :, None] * torch.nn.functional.normalize(torch.randn(rows, n, 32, generator=generator), dim=-1)
    maskable = torch.ones(rows, n, dtype=torch.bool)
    log_q = propose(size.log(), maskable, 1.0, uniform_mix)

    def gradient(row, r):
        one = slice(row, row + 1)
        pair = draw_pair(log_q[one], (5, r), torch.tensor([row]))
        taken = pair.depth.floor() < k
        weight = weigh(log_inclusion(log_q[one], pair.perturbed, taken), taken, torch.tensor([n])).weight
        return (weight[0, 0, :, None] * g[row]).sum(0) / k, 0.0

    return decompose(gradient, range(rows), 4, 12)


def test_proportional_proposal_lowers_the_mask_term():
    proportional, mixed, uniform = (mask_terms(mix) for mix in (0.0, 0.5, 1.0))
    assert proportional["mask"].value + proportional["mask"].error < uniform["mask"].value - uniform["mask"].error
    assert proportional["mask"].value < 0.75 * uniform["mask"].value
    assert proportional["mask"].value < mixed["mask"].value < uniform["mask"].value
    # uniform without replacement: (1 - k/n) / k times the variance of the positions' gradients, in loops
    generator = torch.Generator().manual_seed(3)
    size = torch.exp(0.8 * torch.randn(240, 16, generator=generator))
    g = size[:, :, None] * torch.nn.functional.normalize(torch.randn(240, 16, 32, generator=generator), dim=-1)
    exact = float((g - g.mean(1, keepdim=True)).pow(2).sum(-1).sum(1).mean() / 15) * (1 - 6 / 16) / 6
    assert abs(uniform["mask"].value - exact) < 2 * uniform["mask"].error


def test_intervals():
    for freedom in (1, 7, 30, 31, 100):
        assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-3)
    values = [1.0, 2.0, 4.0]
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    found = summarise(values)
    assert (found.value - found.error, found.value + found.error) == pytest.approx((low, high), rel=1e-3)
    with pytest.raises(ValueError, match="2 rows a group, got 2, 4 and 1"):
        decompose(None, range(7), 2, 4)


def test_command(mapnet_checkpoint, corpus, tmp_path, capsys):
    out = [str(tmp_path / name) for name in ("v.png", "v.json")]
    bpe = ["--bpe", "sentencepiece", "--sentencepiece-model", str(corpus / "sp.model")]
    arguments = ["variance", str(mapnet_checkpoint), str(corpus / "bin"), "--maskers"]
    arguments += ["uniform", "whole_word", "span", "mapnet@0.2"]
    arguments += ["--rates", "0.15", "0.4", "--rows", "8", "--masks", "2", "--groups", "2", "--params", "embed_tokens"]
    assert main([*arguments, *bpe, "--png", out[0], "--json", out[1], "--cpu"]) == 0
    printed = capsys.readouterr().out
    found = json.load(open(out[1]))["lines"]
    assert [line["masker"] for line in found] == ["uniform", "whole_word", "span", "mapnet@0.2"] * 2
    assert all(line["found"]["mask"]["value"] > 0 for line in found)
    assert "of 1 parameters" in printed and printed.count("| span |") == 2
    # with every parameter: those that are trained, and none of fairseq's copies of them
    few = "--rows 4 --masks 2 --groups 2 --cpu".split()
    assert main(["variance", str(mapnet_checkpoint), str(corpus / "bin"), *few]) == 0
    others = ("encoder.lm_head.weight", "encoder.sentence_encoder.version")  # the embeddings again, and no parameter
    trained = [name for name in harness.trained(harness.load_weights(mapnet_checkpoint)) if name not in others]
    assert f" of {len(trained)} parameters" in capsys.readouterr().out
    assert open(out[0], "rb").read(4) == b"\x89PNG"


def test_rows_that_a_training_skips_are_left_out(corpus, tmp_path):
    """With --sample-break-mode eos lines may be longer than the model's --max-positions."""
    lines = (corpus / "train.sp").read_text().splitlines()
    (tmp_path / "text").write_text("\n".join([*lines[:20], " ".join(lines[:10])]) + "\n")
    harness.preprocess(tmp_path / "text", tmp_path / "text", tmp_path / "bin", "--srcdict", corpus / "bin" / "dict.txt")
    options = ["--sample-break-mode", "eos", "--tokens-per-sample", 256, "--max-positions", 256, "--max-update", 1]
    harness.train(tmp_path / "bin", tmp_path / "run", *options, "--skip-invalid-size-inputs-valid-test")
    arguments = [str(tmp_path / "run" / "checkpoint_last.pt"), str(tmp_path / "bin"), "--maskers", "uniform", "--cpu"]
    more = ["--masks", "2", "--groups", "2", "--params", "embed_tokens", "--rows"]
    assert main(["variance", *arguments, *more, "20"]) == 0
    with pytest.raises(UsageError, match="--rows must be at most the rows of train that the model takes, 20, got 22"):
        main(["variance", *arguments, *more, "22"])


@pytest.mark.parametrize("name", ["uniform", "mapnet"])
def test_masks_differ_in_their_replacements_too(data_bin, name):
    """With all tokens corrupted nothing but the random tokens is left to differ."""
    task, cfg = harness.make_task(data_bin, "--criterion", "mapnet", "--random-token-prob", 0.5)
    task.load_dataset("train")
    model, criterion = task.build_model(cfg.model), task.build_criterion(cfg.criterion)
    mask = _masking(name, task, model, criterion, seed=1)
    dataset = task.datasets["train"]
    row = dataset.collater([dataset[0]])
    one, other = (mask(row, Rates(1.0, 1.0), r)[0]["net_input"]["src_tokens"] for r in (0, 1))
    assert ((one == task.mask_idx) != (other == task.mask_idx)).any()


def test_runs_of_units_are_measured(data_bin):
    task, cfg = harness.make_task(data_bin, "--mask-multiple-length", 4)
    mask = _masking("uniform", task, None, None, seed=1)
    corrupted = mask(harness.batches(task, cfg)[0], Rates(0.3, 0.3), 0)[0]["net_input"]["src_tokens"] == task.mask_idx
    after = corrupted[:, 1:][corrupted[:, :-1]].float().mean()
    assert after > 0.6  # of single tokens 0.3


@pytest.mark.parametrize(
    "options, text",
    [
        ("--masks 1", "--masks must be at least 2, got 1"),
        ("--rows 10 --groups 4", "--rows must be a multiple of --groups, 4"),
        ("--rates 1.5", r"--rates must lie in \(0, 1\], got 1.5"),
        ("--params (", r"--params \(: no regular expression"),
        ("--params nothing --rows 4 --groups 2", "--params nothing matches none of the model's parameters"),
        ("--maskers mapnet@2 --rows 4 --groups 2", r"EPS, the uniform share, must lie in \[0, 1\], got '2'"),
        ("--maskers other --rows 4 --groups 2", "--masker must be one of"),
    ],
)
def test_refusals(mapnet_checkpoint, data_bin, options, text):
    with pytest.raises(ValueError, match=text):
        main(["variance", str(mapnet_checkpoint), str(data_bin), "--cpu", *options.split()])


def test_incomplete_model(mapnet_checkpoint, data_bin, tmp_path):
    state = read_checkpoint(str(mapnet_checkpoint))
    del state["model"]["encoder.sentence_encoder.embed_tokens.weight"]
    torch.save(state, tmp_path / "less.pt")
    with pytest.raises(UsageError, match="less.pt: does not fit its own options: .*embed_tokens"):
        main(["variance", str(tmp_path / "less.pt"), str(data_bin), "--rows", "4", "--groups", "2", "--cpu"])


def test_lost_proposer(mapnet_checkpoint, data_bin, tmp_path):
    state = read_checkpoint(str(mapnet_checkpoint))
    del state["criterion"]
    torch.save(state, tmp_path / "lost.pt")
    arguments = [str(tmp_path / "lost.pt"), str(data_bin), "--rows", "4", "--masks", "2", "--groups", "2", "--cpu"]
    with pytest.raises(UsageError, match="lost.pt has no MAP-Net proposer, it has lost"):
        main(["variance", *arguments, "--maskers", "mapnet"])
    assert main(["variance", *arguments]) == 0
