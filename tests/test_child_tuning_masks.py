"""Which entries ChildTuning selects: the keyed masks by their definition, and their statistics."""

import pytest
import torch
from child_tuning_helpers import ADAM, keyed, parameters, run, whole_mask, words
from reference import child_tuning as reference

from fairseq_maskplugins.child_tuning import masks as masks_module
from fairseq_maskplugins.child_tuning.masks import CELL, KeyedMask
from fairseq_maskplugins.child_tuning.optim import ChildAdam, build
from fairseq_maskplugins.child_tuning.options import build_masking


def test_the_keyed_mask_is_its_definition():
    total = 3 * CELL + 500
    mask = KeyedMask(11, 0.3, total)
    for low, high in ((0, 40), (CELL - 20, CELL), (CELL, CELL + 30), (3 * CELL + 470, total)):
        expected = [reference.selected_at(11, 4, position, 0.3) for position in range(low, high)]
        assert words(mask, 4, low, high).tolist() == expected


def test_the_mask_does_not_depend_on_how_it_is_cut():
    mask = KeyedMask(3, 0.4, 6 * CELL)
    whole = words(mask, 2, 0, 6 * CELL)  # many cells at once, as on an accelerator
    assert torch.equal(whole, whole_mask(mask, 2))
    assert torch.equal(whole[1000 : 3 * CELL + 7], words(mask, 2, 1000, 3 * CELL + 7))


@pytest.mark.parametrize("p", [0.001, 0.3, 0.5, 0.97])
def test_the_share_is_met_and_draws_are_independent(p):
    n = 8 * CELL
    mask = KeyedMask(1, p, n)
    one, other = words(mask, 0, 0, n).double(), words(mask, 1, 0, n).double()

    def within(mean, expected, count):  # five standard deviations of a Bernoulli mean
        assert abs(mean - expected) < 5 * (expected * (1 - expected) / count) ** 0.5 + 2**-30

    within(one.mean().item(), p, n)
    within((one * other).mean().item(), p * p, n)  # two updates
    within((one * words(KeyedMask(2, p, n), 0, 0, n)).mean().item(), p * p, n)  # two seeds
    for lag in (1, 2, 3, 8, 768, CELL):  # neighbours, rows, cells
        within((one[lag:] * one[:-lag]).mean().item(), p * p, n - lag)
    per_cell = one.view(8, CELL).mean(1)
    assert ((per_cell - p).abs() < 5 * (p * (1 - p) / CELL) ** 0.5).all()


def test_every_selection_pattern_of_eight_neighbours_is_as_frequent():
    n = 8 * CELL
    bits = words(KeyedMask(9, 0.5, n), 3, 0, n).view(-1, 8).long()
    counts = torch.bincount((bits << torch.arange(8)).sum(1), minlength=256).double()
    expected = n / 8 / 256
    chi2 = ((counts - expected) ** 2 / expected).sum().item()
    assert chi2 < 255 + 5 * (2 * 255) ** 0.5  # mean and deviation of a chi-square of 255 degrees


def test_masks_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    params = parameters()
    run(build(ChildAdam, params, keyed(1, 0.3), build_masking("F", 0.3, "gradient", False, None), **ADAM), params, 1)
    assert torch.equal(before, torch.get_rng_state())


def test_cells_are_part_of_the_definition():
    assert masks_module.CELL == 1 << 17, "other cells give other masks: a resumed run would change"
