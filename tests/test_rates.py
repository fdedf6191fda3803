"""Rates, copies and schedules."""

import math

import pytest

from fairseq_maskplugins.decoupled_mlm.rates import Rates, RateSchedule, build_schedule


@pytest.mark.parametrize(
    "corruption, prediction, copies",
    [
        (0.2, 0.6, 3),
        (0.1, 0.3, 3),
        (0.4, 0.4, 1),
        (0.4, 0.2, 1),
        (0.4, 1.0, 3),
        (0.05, 0.12, 3),
        (1.0, 1.0, 1),
        (0.7, 0.7000001, 2),
    ],
)
def test_copies(corruption, prediction, copies):
    """0.6 / 0.2 is 2.9999999999999996 and 0.3 / 0.1 is 2.9999999999999996: neither may become 4 copies or lose one."""
    assert Rates(corruption, prediction).copies == copies


def test_defaults_follow_mask_prob():
    assert build_schedule(0.4).start == Rates(0.4, 0.4)
    assert build_schedule(0.4, corruption_rate=0.2).start == Rates(0.2, 0.4)
    assert build_schedule(0.4, prediction_rate=0.1).start == Rates(0.4, 0.1)


def test_schedule_is_linear_and_exact():
    schedule = build_schedule(0.3, mask_prob_final=0.15, max_update=1000)
    assert schedule.at(0) == Rates(0.3, 0.3)
    assert schedule.at(500).corruption == pytest.approx(0.225, abs=1e-15)
    assert schedule.at(1000) == schedule.at(5000) == Rates(0.15, 0.15)
    one = build_schedule(0.3, corruption_rate_final=0.6, max_update=10)
    assert one.at(5).corruption == pytest.approx(0.45) and one.at(5).prediction == 0.3
    mixed = build_schedule(0.3, mask_prob_final=0.1, prediction_rate_final=0.5, max_update=10)
    assert mixed.final == Rates(0.1, 0.5)


def test_max_copies_bounds_every_update():
    schedule = RateSchedule(Rates(0.4, 0.4), Rates(0.1, 0.55), 997)
    assert max(schedule.at(update).copies for update in range(1000)) == schedule.max_copies == 6


@pytest.mark.parametrize("value", [0, -0.1, 1.5, math.nan, math.inf])
@pytest.mark.parametrize(
    "option",
    ["mask_prob", "corruption_rate", "prediction_rate", "mask_prob_final", "corruption_rate_final", "prediction_rate_final"],
)
def test_bad_rates_are_named(option, value):
    options = {"mask_prob": 0.4, "max_update": 5, option: value}
    with pytest.raises(ValueError, match=f"--{option.replace('_', '-')} must lie in \\(0, 1\\], got"):
        build_schedule(**options)


def test_schedule_needs_max_update():
    with pytest.raises(ValueError, match="--max-update, which must be above 0, got 0"):
        build_schedule(0.4, mask_prob_final=0.2)
