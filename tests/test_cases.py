"""Every registered thing trains, resumes to the same numbers and agrees over two ranks: the table is in ``cases.py``."""

import os

import harness
import pytest
from cases import CASES

UPDATES = 4
TRAINED = [pytest.param(case, id=case.name, marks=[pytest.mark.once] if case.once else []) for case in CASES]


def options_of(case, corpus):
    return [option.replace("{corpus}", str(corpus)) for option in case.options]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_registry_returns_our_class(case):
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.optim import OPTIMIZER_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    import fairseq_maskplugins  # noqa: F401  (registers)
    from fairseq_maskplugins.maskers.base import MASKERS

    registries = {
        "task": TASK_REGISTRY,
        "criterion": CRITERION_REGISTRY,
        "model": ARCH_MODEL_REGISTRY,
        "optimizer": OPTIMIZER_REGISTRY,
        "masker": {name: entry.masker for name, entry in MASKERS.items()},
    }
    cls = registries[case.registry][case.registered]
    assert cls.__name__ == case.cls
    assert cls.__module__.startswith("fairseq_maskplugins.")


@pytest.mark.parametrize("case", TRAINED)
def test_trains_and_resumes_to_the_same_numbers(case, corpus, tmp_path):
    options = options_of(case, corpus) + ["--max-update", UPDATES, "--save-interval-updates", 2]
    whole = harness.train(corpus / "bin", tmp_path / "whole", *options, base=case.base)
    assert sorted(whole.losses()) == list(range(1, UPDATES + 1))
    assert all(0 < loss < 50 for loss in whole.losses().values())  # NaN fails too

    # the same run, cut off after two updates, in the middle of an epoch
    os.makedirs(tmp_path / "rest")
    os.link(tmp_path / "whole" / "checkpoint_1_2.pt", tmp_path / "rest" / "checkpoint_last.pt")
    rest = harness.train(corpus / "bin", tmp_path / "rest", *options, base=case.base)
    assert rest.losses() == {update: whole.losses()[update] for update in range(3, UPDATES + 1)}
    harness.assert_same_weights(*(tmp_path / run / "checkpoint_last.pt" for run in ("whole", "rest")))


@pytest.mark.parametrize("case", TRAINED)
def test_two_ranks_stay_bit_equal(case, corpus, tmp_path):
    options = options_of(case, corpus) + ["--max-update", UPDATES, "--save-interval-updates", 2]
    logs = harness.train_two_ranks(corpus / "bin", [tmp_path / "rank0", tmp_path / "rank1"], *options, base=case.base)
    assert sorted(logs[0].digests) == ["2", "4"]
    assert logs[0].digests == logs[1].digests
    assert len(logs[0].losses()) == UPDATES  # only the first rank logs
