"""What ``docs/several_gpus.md`` says, on ranks of this machine's CPUs: its table names these tests."""

import ast
import importlib.util
import re

import harness
import numpy as np
import pytest
from cases import CASES
from child_tuning_helpers import config, parameters
from fairseq import optim
from rank_runs import BY_NAME, STEPS, assert_close_weights, fixed_mask, options_of, ranks, spawn

from fairseq_maskplugins.errors import UsageError

PAGE = harness.ROOT / "docs" / "several_gpus.md"
SAME = "--dropout 0 --attention-dropout 0 --required-batch-size-multiple 1".split()
UNEVEN = "--sample-break-mode eos --tokens-per-sample 256 --max-positions 256".split()

slow = pytest.mark.slow


def only(names):
    """The cases of these names as they are, the others marked slow."""
    return [pytest.param(case.name, marks=() if case.name in names else slow) for case in CASES]


# --ddp-backend pytorch_ddp, the default


@pytest.mark.parametrize("name", only(["decoupled", "mapnet", "child_sgd"]))
def test_pytorch_ddp(name, corpus, tmp_path):
    """torch's own wrapper: every parameter that is trained gets a gradient in every step, or it would stop."""
    if "sentence_prediction" in BY_NAME[name].base:  # fine-tuning leaves the masked-LM head without a gradient
        extra = ["--find-unused-parameters"]
        options = [option for option in options_of(name, corpus) if option != "--checkpoint-activations"]
        folders = [tmp_path / "0", tmp_path / "1"]
        options += [*STEPS, *extra]
        logs = harness.train_ranks(corpus / "bin", folders, *options, ddp="pytorch_ddp", base=BY_NAME[name].base)
    else:
        logs = ranks(name, corpus, tmp_path, *STEPS, ddp="pytorch_ddp")
    assert sorted(logs[0].digests) == ["2", "4"] and logs[0].digests == logs[1].digests


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "mae" else slow) for n in ("mae", "pmi", "schedule", "mapnet_shared")]
)
def test_two_ranks_equal_one_with_twice_the_update_freq(name, corpus, tmp_path):
    """Under torch's wrapper, dropout off; plain masks and MAP-Net have such tests under ``legacy_ddp`` elsewhere."""
    options = [*SAME, *STEPS, "--batch-size", 4]
    logs = ranks(name, corpus, tmp_path, *options, ddp="pytorch_ddp")
    alone = harness.train(corpus / "bin", tmp_path / "one", *options_of(name, corpus), *options, "--update-freq", 2)
    assert logs[0].losses() == pytest.approx(alone.losses(), abs=2e-3)  # logged with three decimals
    assert_close_weights(tmp_path / "rank0" / "checkpoint_last.pt", tmp_path / "one" / "checkpoint_last.pt")


@pytest.mark.parametrize("sharding", ["none", pytest.param("os", marks=slow)])
@pytest.mark.parametrize("exact", [False, pytest.param(True, marks=slow)])
@pytest.mark.parametrize("case", ["D", pytest.param("child_sgd", marks=slow), pytest.param("child_adam", marks=slow)])
def test_child_tuning_is_the_same_on_any_number_of_ranks(case, exact, sharding, corpus, tmp_path, request):
    """Masks are keyed by the update alone, or fixed: as one rank with twice the update frequency."""
    if sharding == "os":
        request.getfixturevalue("fairscale")
    options = [*SAME, *STEPS, "--batch-size", 4]
    if case == "D":
        mask = fixed_mask(corpus / "bin", tmp_path / "mask")
        options += ["--optimizer", "child_tuning_adam", "--child-tuning-mode", "D", "--child-tuning-mask", mask]
    if exact and case != "child_sgd":
        options += ["--child-tuning-exact"]
    name = "plain" if case == "D" else case
    logs = ranks(name, corpus, tmp_path, *options, "--zero-sharding", sharding)
    alone = harness.train(corpus / "bin", tmp_path / "one", *options_of(name, corpus), *options, "--update-freq", 2)
    assert logs[0].losses() == pytest.approx(alone.losses(), abs=2e-3)
    if case != "child_adam":  # Adam's first steps are the gradient's sign: rounding decides the small ones
        assert_close_weights(tmp_path / "rank0" / "checkpoint_last.pt", tmp_path / "one" / "checkpoint_last.pt")


# masks, uneven data, resuming


def test_ranks_share_out_rows_and_masks(data_bin):
    """Every row goes to one rank, with the mask that it has on a single one; masks of the ranks differ."""
    task, cfg = harness.make_task(data_bin, "--mask-prob", 0.3, "--batch-size", 4)
    task.load_dataset("train")

    def read(world):
        found = {}
        for rank in range(world):
            for sample in harness.batches(task, cfg, num_shards=world, shard_id=rank):
                if not sample:
                    continue  # the batch that fills up a rank's last step
                masked = task.mask_batch(sample, task.schedule.start)
                for row, index in enumerate(sample["id"].tolist()):
                    assert index not in found, "a row is on two ranks"
                    width = int(sample["net_input"]["src_lengths"][row])
                    found[index] = rank, masked["net_input"]["src_tokens"][row, :width].eq(task.mask_idx).numpy()
        return found

    alone, three = read(1), read(3)
    assert alone.keys() == three.keys() and len(alone) == len(task.datasets["train"])
    assert all(np.array_equal(alone[i][1], three[i][1]) for i in alone)
    assert {rank for rank, _ in three.values()} == {0, 1, 2}
    full = [mask for _, mask in three.values() if len(mask) == 32]
    assert len({mask.tobytes() for mask in full}) > 0.95 * len(full)


def test_three_ranks_on_uneven_data(corpus, tmp_path):
    """In the last step of the epoch one rank or two have no batch: the losses are those of one rank with all of them."""
    options = [*UNEVEN, *SAME, "--batch-size", 8, "--max-epoch", 1]
    lines = (corpus / "train.sp").read_text().splitlines()[:77]  # 10 batches, the last of 5 rows
    (tmp_path / "t.sp").write_text("\n".join(lines) + "\n")
    dictionary = corpus / "bin" / "dict.txt"
    harness.preprocess(tmp_path / "t.sp", corpus / "valid.sp", tmp_path / "bin", "--srcdict", dictionary)
    folders = [tmp_path / f"rank{rank}" for rank in range(3)]
    logs = harness.train_ranks(tmp_path / "bin", folders, *options)
    alone = harness.train(tmp_path / "bin", tmp_path / "one", *options, "--update-freq", 3)
    assert len(alone.losses()) == 4 and logs[0].losses() == pytest.approx(alone.losses(), abs=2e-3)
    assert logs[0].valid[-1]["valid_loss"] == pytest.approx(alone.valid[-1]["valid_loss"], abs=2e-3)
    assert logs[0].digests == logs[1].digests == logs[2].digests


def test_another_number_of_ranks_goes_on(corpus, tmp_path):
    """At the end of an epoch: two ranks, then one with twice the update frequency, as two ranks throughout."""
    options = [*UNEVEN, *SAME, "--random-token-prob", 0.1, "--max-epoch"]
    folders = [tmp_path / "rank0", tmp_path / "rank1"]
    whole = harness.train_ranks(corpus / "bin", folders, *options, 2)[0]
    first = tmp_path / "rank0" / "checkpoint1.pt"
    rest = harness.train(corpus / "bin", tmp_path / "one", *options, 2, "--update-freq", 2, "--restore-file", first)
    assert min(rest.losses()) == len(whole.losses()) // 2 + 1
    assert rest.losses() == pytest.approx({u: whole.losses()[u] for u in rest.losses()}, abs=2e-3)


# --zero-sharding os


@pytest.fixture
def fairscale():
    if importlib.util.find_spec("fairscale") is None:
        pytest.skip("pip install fairscale")


@pytest.mark.parametrize("name", only(["child_sgd"]))
def test_zero_sharding(name, corpus, tmp_path, fairscale):
    """Each rank keeps the optimizer state of a part of the parameters: the same weights as without, to rounding (fairscale
    moves parameters in memory, which some versions of torch's kernels show in the last bit)."""
    plain = ranks(name, corpus, tmp_path / "plain", *STEPS)
    sharded = ranks(name, corpus, tmp_path / "os", *STEPS, "--zero-sharding", "os")
    assert sharded[0].losses() == pytest.approx(plain[0].losses(), abs=2e-3)
    assert_close_weights(*(tmp_path / run / "rank0" / "checkpoint_last.pt" for run in ("plain", "os")))


@slow
@pytest.mark.parametrize("name", ["decoupled", "child_adam", "child_sgd", "mapnet"])
def test_zero_sharding_resumes(name, corpus, tmp_path, fairscale):
    whole = ranks(name, corpus, tmp_path / "whole", *STEPS, "--zero-sharding", "os")
    part = ["--restore-file", tmp_path / "whole" / "rank0" / "checkpoint_1_2.pt"]
    rest = ranks(name, corpus, tmp_path / "rest", *STEPS, "--zero-sharding", "os", *part)
    assert rest[0].losses() == {u: whole[0].losses()[u] for u in (3, 4)}
    # the file holds the whole state: it goes on without sharding too
    ranks(name, corpus, tmp_path / "without", *STEPS, *part)
    for run in ("rest", "without"):
        assert_close_weights(*(tmp_path / at / "rank0" / "checkpoint_last.pt" for at in ("whole", run)))


# half precision


@pytest.mark.parametrize("flags", ["--fp16", "--memory-efficient-fp16", "--fp16 --fp16-no-flatten-grads"])
@pytest.mark.parametrize("name", ["decoupled", "mapnet", "mae", "droptoken", "child_sgd"])
@slow
def test_half_precision_on_two_ranks(name, flags, corpus, tmp_path):
    logs = ranks(name, corpus, tmp_path, *STEPS, *flags.split(), user_dir=harness.CPU_DDP)
    full = ranks(name, corpus, tmp_path / "full", *STEPS)
    # the first loss is before any step; the others follow within what float16 resolves
    assert logs[0].losses() == pytest.approx(full[0].losses(), abs=0.02)


# one machine: fairseq starts the processes


@slow
def test_fairseq_starts_a_process_for_each_gpu(corpus, tmp_path):
    done = spawn(corpus, tmp_path, *STEPS, "--masker", "span", "--span-unit", "token")
    assert done.returncode == 0, done.stdout[-3000:]
    digests = re.findall(r"weights@(\d+)=(\w+)", done.stdout)
    assert len(digests) == 4 and len(set(digests)) == 2


# refusals


@pytest.mark.parametrize(
    "options, message",
    [
        ("--tpu", "--tpu is not supported with --task decoupled_mlm$"),
        ("--bf16", "--tpu is not supported with .*: fairseq-train takes --bf16 for a TPU's; on GPUs give fairseq-hydra-train"),
    ],
)
def test_what_is_refused(options, message, data_bin):
    with pytest.raises(UsageError, match=message) as error:
        harness.make_task(data_bin, *options.split())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["child_tuning_adam", "child_tuning_sgd"])
@pytest.mark.parametrize("option", ["pipeline_model_parallel", "use_bmuf"])
def test_what_child_tuning_refuses(option, name):
    flag = f"--{option.replace('_', '-')}"
    with pytest.raises(UsageError, match=f"{flag} can't go with ChildTuning"):
        optim.build_optimizer(config(name, **{option: True}).optimizer, parameters())


@pytest.mark.parametrize("backend", ["fully_sharded", "slowmo"])
def test_what_mapnet_refuses(backend, data_bin):
    task, cfg = harness.make_task(data_bin, "--criterion", "mapnet", "--ddp-backend", backend)
    with pytest.raises(UsageError, match=f"--ddp-backend pytorch_ddp or legacy_ddp, got {backend}"):
        task.build_criterion(cfg.criterion)


# the page


def test_the_table_names_tests_that_exist():
    text = PAGE.read_text()
    named = re.findall(r"`(test_\w+)::(test_\w+)`", text)
    assert len(named) > 10
    for file, name in named:
        tree = ast.parse((harness.ROOT / "tests" / f"{file}.py").read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file}::{name}"
    rows = re.findall(r"^\| .* \|$", text, flags=re.M)
    told = [row for row in rows if re.search(r"\*\*(yes|refused)\*\*", row)]
    assert told and all("`test_" in row for row in told), "a row of the table without its test"
    # what this file tests is in the table
    own = {node.name for node in ast.parse(open(__file__).read()).body if isinstance(node, ast.FunctionDef)}
    own = {name for name in own if name.startswith("test_")} - {"test_the_table_names_tests_that_exist"}
    assert own <= {name for _, name in named}, own - {name for _, name in named}
