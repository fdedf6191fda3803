"""``fairseq-train --restore-file`` with checkpoints that can be read and not gone on from: one line, that names a way."""

import copy

import files
import harness
import pytest
import torch
from fairseq_maskplugins.checkpoints.optimizer_state import check_loaded
from fairseq_maskplugins.checkpoints.training_state import (
    Uses,
    check_iterator,
    check_training_state,
    fill_history,
)

from fairseq_maskplugins.checkpoints import list_mismatches, read_checkpoint, register

EMBEDDING = "encoder.sentence_encoder.embed_tokens.weight"


@pytest.fixture(scope="module")
def state(data_bin, tmp_path_factory):
    """Of a run that ended inside its first epoch."""
    folder = tmp_path_factory.mktemp("run")
    harness.train(data_bin, folder, "--max-update", 2)
    with open(folder / "checkpoint_last.pt", "rb") as file:
        return read_checkpoint(file)


def weights(**changes):
    """The model with other tensors; None leaves one out."""

    def edit(state):
        for name, change in changes.items():
            name = name.replace("__", ".")
            value = change(state["model"].pop(name, None))
            if value is not None:
                state["model"][name] = value

    return edit


def poison(tensor):
    tensor = tensor.clone()
    tensor[5, 3] = float("nan")
    return tensor


def part(path, value):
    """Another value at a path of keys; ``...`` takes the last away."""

    def edit(state):
        *above, last = path
        for key in above:
            state = state[key]
        if value is ...:
            del state[last]
        else:
            state[last] = value

    return edit


def other_shape(state):
    state["last_optimizer_state"]["state"][0]["exp_avg"] = torch.zeros(3)


def moment(name, value, dtype=torch.float32):
    def edit(state):
        found = state["last_optimizer_state"]["state"][0]
        found[name] = torch.full_like(found[name], value, dtype=dtype)

    return edit


def fewer_parameters(state):
    group = state["last_optimizer_state"]["param_groups"][0]
    group["params"] = group["params"][:-2]


OPTIMIZER, ITERATOR, METERS = ("--reset-optimizer",), ("--reset-dataloader",), ("--reset-meters",)
TENSOR = EMBEDDING.replace(".", "__")
HISTORY, SAVED, DATA = ("optimizer_history",), ("last_optimizer_state",), ("extra_state", "train_iterator")
STEP, GROUP = (*SAVED, "state", 0, "step"), (*SAVED, "param_groups", 0)
TIME = ("extra_state", "previous_training_time")
METER = [(10, "loss", "AverageMeter", {"val": 1.0, "sum": "x", "count": 1, "round": 3})]
# what is edited, what is said, and the options with which the run goes on
KINDS = {
    "another shape": (
        weights(**{TENSOR: lambda old: torch.zeros(7, 5)}),
        f"its weights don't fit this model: {EMBEDDING} has the shape [7, 5] there and [",
        None,
    ),
    "a tensor too few": (weights(**{TENSOR: lambda old: None}), f"{EMBEDDING} is missing", None),
    "a tensor too many": (weights(more=lambda old: torch.zeros(1)), "more has no place in this model", None),
    "NaN weights": (weights(**{TENSOR: poison}), f"{EMBEDDING} holds NaN or infinite values (1 of ", None),
    "weights of 8 bits": (
        weights(**{TENSOR: lambda old: old.to(torch.int8)}),
        f"{EMBEDDING} must hold floating-point numbers, 16 bits or more, got int8",
        None,
    ),
    "no table of weights": (part(("model",), {"a": 1}), "a is no tensor", None),
    "an optimizer's state of another type": (part(SAVED, "x"), "last_optimizer_state must be a table", OPTIMIZER),
    "no groups": (part((*SAVED, "param_groups"), ...), "has no list of param_groups", OPTIMIZER),
    "other groups": (fewer_parameters, "its optimizer state doesn't fit this run: it is of ", OPTIMIZER),
    "no momentum": (part((*SAVED, "state", 0, "exp_avg"), ...), "parameter 0: its exp_avg must be", OPTIMIZER),
    "a momentum of another shape": (other_shape, "its exp_avg has the shape [3], the parameter [", OPTIMIZER),
    "a step of another type": (part((*SAVED, "state", 0, "step"), "x"), "its step must be a whole number", OPTIMIZER),
    "no betas": (part((*SAVED, "param_groups", 0, "betas"), ...), "its group has no betas", OPTIMIZER),
    "squares below 0": (moment("exp_avg_sq", -1.0), "its exp_avg_sq holds values below 0", OPTIMIZER),
    "an infinite momentum": (moment("exp_avg", float("inf")), "its exp_avg holds NaN or infinite values", OPTIMIZER),
    "a momentum of integers": (moment("exp_avg", 1, torch.int32), "its exp_avg must hold floating-point", OPTIMIZER),
    "a step of 2,000 bits": (part(STEP, 1 << 1_999), "its step must be a whole number, got a number of", OPTIMIZER),
    "a complex step": (part(STEP, torch.tensor(5j)), "its step must be a whole number", OPTIMIZER),
    "several steps": (part(STEP, torch.tensor([5.0])), "its step must be a whole number", OPTIMIZER),
    "no largest squares": (part((*GROUP, "amsgrad"), True), "its max_exp_avg_sq must be a tensor", OPTIMIZER),
    "a switch of a text": (part((*GROUP, "amsgrad"), "yes"), "amsgrad must be true or false, got 'yes'", OPTIMIZER),
    "betas of 1": (part((*GROUP, "betas"), (1.0, 1.0)), "its group's betas must lie in [0, 1)", OPTIMIZER),
    "a decay of 1e308": (part((*GROUP, "weight_decay"), 1e308), "must be a number of single precision", OPTIMIZER),
    "no history": (part(HISTORY, []), "its optimizer_history is empty", OPTIMIZER),
    "a history of another type": (part(HISTORY, "none"), "optimizer_history must be a list of tables", OPTIMIZER),
    "a history of numbers": (part(HISTORY, [1, 2]), "optimizer_history must be a list of tables", OPTIMIZER),
    "no number of updates": (part((*HISTORY, 0, "num_updates"), "x"), "num_updates must be a whole number", OPTIMIZER),
    "a history without names": (part((*HISTORY, 0, "criterion_name"), 1), "has no names", OPTIMIZER),
    "another criterion": (part((*HISTORY, 0, "criterion_name"), "Other"), "optimizer state is of Other", OPTIMIZER),
    "another optimizer": (part((*HISTORY, 0, "optimizer_name"), "Other"), "optimizer state is of Other", OPTIMIZER),
    "a scheduler's state of a text": (
        part((*HISTORY, 0, "lr_scheduler_state"), {"lr": "x"}),
        "its learning-rate scheduler's state must be numbers, got 'x'",
        OPTIMIZER,
    ),
    "no iterator": (part(DATA, ...), "it has no train_iterator", ITERATOR),
    "an iterator of another type": (part(DATA, [1]), "train_iterator must be a table, got a list", ITERATOR),
    "an epoch of a text": (part((*DATA, "epoch"), "x"), "train_iterator.epoch must be a whole number in", ITERATOR),
    "an epoch before the first": (part((*DATA, "epoch"), -1), "train_iterator.epoch must be", ITERATOR),
    "an epoch after the last": (part((*DATA, "epoch"), 10**12), "train_iterator.epoch must be", ITERATOR),
    "batches before the first": (part((*DATA, "iterations_in_epoch"), -1), "iterations_in_epoch must be", ITERATOR),
    "batches after the last": (part((*DATA, "iterations_in_epoch"), 10**6), "further into its epoch than", ITERATOR),
    "damaged meters": (part(("extra_state", "metrics"), {"default": METER}), "default.loss.sum must be", METERS),
    "meters of another kind": (part(("extra_state", "metrics"), {"a": [(1, "b", "bisect", {})]}), "damaged", METERS),
    "meters of no kind": (part(("extra_state", "metrics"), {"a": [(1, "b", "Meter", {})]}), "are damaged", METERS),
    "meters without fields": (
        part(("extra_state", "metrics"), {"a": [(1, "b", "StopwatchMeter", {})]}),
        "a.b are damaged",
        METERS,
    ),
    "a time of 2,000 bits": (part(TIME, 1 << 1999), "previous_training_time must be a number, got a number of", METERS),
    "a best loss of a text": (part(("extra_state", "best"), "x"), "extra_state.best must be a number", METERS),
    "no extra state": (part(("extra_state",), [1]), "model.pt: ", None),
}
# one of each way in which they are found
FEW = ("another shape", "NaN weights", "other groups", "no momentum", "no history", "batches after the last")


def restore(kind, state, data, tmp_path, *options, how="--restore-file"):
    edit, said, _ = KINDS[kind]
    changed = copy.deepcopy(state)
    edit(changed)
    path = tmp_path / "model.pt"
    path.write_bytes(files.saved(changed))
    log = harness.train(data, tmp_path / "run", how, path, "--max-update", 3, *options, check=False)
    return log, log.text.strip().splitlines()[-1], f"fairseq_maskplugins: {path}: ", said


def check_ends(kind, state, data, tmp_path):
    log, last, start, said = restore(kind, state, data, tmp_path)
    assert log.returncode == 1 and "Traceback" not in log.text, log.text[-3000:]
    assert last.startswith(start) and said in last, last


@pytest.mark.parametrize("kind", FEW)
def test_one_line(kind, state, data_bin, tmp_path):
    check_ends(kind, state, data_bin, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in FEW])
def test_one_line_for_more(kind, state, data_bin, tmp_path):
    check_ends(kind, state, data_bin, tmp_path)


WAYS = [(kind, options) for kind, (_, _, options) in KINDS.items() if options]


def check_goes_on(kind, options, state, data, tmp_path):
    log, *_ = restore(kind, state, data, tmp_path, *options)
    assert log.returncode == 0 and log.train, log.text[-3000:]


@pytest.mark.parametrize("kind", ["no history", "an epoch of a text"])
def test_the_way_that_is_named(kind, state, data_bin, tmp_path):
    check_goes_on(kind, KINDS[kind][2], state, data_bin, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind, _ in WAYS])
def test_every_way_that_is_named(kind, state, data_bin, tmp_path):
    check_goes_on(kind, KINDS[kind][2], state, data_bin, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind, _ in WAYS])
def test_the_weights_alone(kind, state, data_bin, tmp_path):
    log, *_ = restore(kind, state, data_bin, tmp_path, how="--finetune-from-model")
    assert log.returncode == 0 and log.train, log.text[-3000:]


@pytest.mark.parametrize("kind", ["an epoch of a text", "another shape"])
def test_every_rank_says_so(kind, state, data_bin, tmp_path):
    """Rank 0 alone reads the file; what is found there, and what each finds, ends both."""
    edit, said, _ = KINDS[kind]
    changed = copy.deepcopy(state)
    edit(changed)
    (tmp_path / "model.pt").write_bytes(files.saved(changed))
    folders = [tmp_path / "a", tmp_path / "b"]
    logs = harness.train_two_ranks(data_bin, folders, "--restore-file", tmp_path / "model.pt", check=False, timeout=120)
    for log in logs:
        assert log.returncode == 1 and "Traceback" not in log.text, log.text[-3000:]
        last = log.text.strip().splitlines()[-1]
        assert last.startswith(f"fairseq_maskplugins: {tmp_path}/model.pt: ") and said in last


# what fairseq or the model has to be there for
NEEDS_RUN = ("a tensor", "another", "NaN", "other", "no table", "no extra", "batches after", "weights of")
OF_ONE_THAT_IS_LOADED = (
    *("no momentum", "a momentum of another shape", "a step of another type", "no betas", "squares below 0"),
    *("an infinite momentum", "a momentum of integers", "a step of 2,000 bits", "a complex step", "several steps"),
    *("no largest squares", "a switch of a text", "betas of 1", "a decay of 1e308"),
)
PURE = [kind for kind in KINDS if not kind.startswith(NEEDS_RUN)]


@pytest.mark.parametrize("kind", PURE)
def test_before_fairseq_uses_it(kind, state):
    """The same, without fairseq: nothing that it would stumble over gets there."""
    edit, said, _ = KINDS[kind]
    changed = copy.deepcopy(state)
    edit(changed)
    if kind in OF_ONE_THAT_IS_LOADED:
        found = check_loaded(adam(changed["last_optimizer_state"]))
    else:
        found = check_training_state(fill_history(changed), Uses(), register.METERS)
    assert (said in found) if kind != "no iterator" else "train_iterator" in found


def test_a_good_one_is_left_alone(state):
    before = copy.deepcopy(state)
    assert check_training_state(fill_history(state), Uses(), register.METERS) is None
    assert state["extra_state"] == before["extra_state"] and state["optimizer_history"] == before["optimizer_history"]
    assert check_loaded(adam(state["last_optimizer_state"])) is None


def test_meters_that_collect_values_are_left_alone(state):
    """fairseq-fixed has one that holds a tensor, for scores of a whole epoch."""
    if "ConcatTensorMeter" in register.METERS:
        changed = copy.deepcopy(state)
        meters = [(10, "pred", "ConcatTensorMeter", {"tensor": torch.arange(3)})]
        changed["extra_state"]["metrics"] = {"train": meters}
        assert check_training_state(fill_history(changed), Uses(), register.METERS) is None


class Adam(torch.optim.Optimizer):
    def __init__(self, shapes):
        defaults = {"lr": 0.1, "betas": (0.9, 0.98), "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False}
        super().__init__([torch.nn.Parameter(torch.zeros(shape)) for shape in shapes], defaults)


def adam(saved):
    """An optimizer that fits a state, but for what was changed in it, with the state."""
    optimizer = Adam([value["exp_avg_sq"].shape for value in saved["state"].values()])
    for parameter, value in zip(optimizer.param_groups[0]["params"], saved["state"].values()):
        optimizer.state[parameter] = value
    optimizer.param_groups = [{**saved["param_groups"][0], "params": optimizer.param_groups[0]["params"]}]
    return optimizer


def test_iterators():
    good = {"version": 2, "epoch": 3, "iterations_in_epoch": 0, "shuffle": True}
    assert check_iterator(good) is None and check_iterator({"epoch": 1}) is None
    for name, value in (
        ("epoch", True),
        ("epoch", 2**31),
        ("iterations_in_epoch", None),
        ("shuffle", 1),
        ("version", 0),
    ):
        assert f"train_iterator.{name} must be" in check_iterator({**good, name: value})


def test_mismatches_are_counted():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    state = {"0.weight": torch.zeros(3, 3), "0.bias": torch.zeros(3), "1.bias": torch.zeros(()), "x": torch.zeros(1)}
    with pytest.raises(RuntimeError) as error:
        model.load_state_dict(state)
    found = list_mismatches(str(error.value))
    assert found[:2] == ["1.weight is missing", "x has no place in this model"]
    assert "0.weight has the shape [3, 3] there and [3, 2] here" in found and len(found) == 4
