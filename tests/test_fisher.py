"""``maskplugins fisher``: values, selection, table, and mode D in training. The parts: ``test_fisher_values.py``."""

import sys

import harness
import numpy as np
import pytest
import torch
from forked import Forked

from fairseq_maskplugins.child_tuning import maskfile
from fairseq_maskplugins.child_tuning.select import count_kept
from fairseq_maskplugins.errors import UsageError

FINETUNE = harness.TINY + harness.LABELLED


@pytest.fixture(scope="module")
def checkpoint(data_bin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrained")
    harness.train(data_bin, folder, "--max-update", 2, "--no-epoch-checkpoints")
    return folder / "checkpoint_last.pt"


def fisher_command(data, *options, base=FINETUNE):
    command = [sys.executable, "-m", "fairseq_maskplugins.cli", "fisher", str(data)]
    return command + ["--user-dir", str(harness.USER_DIR), *base, *map(str, options)]


def run_fisher(data, *options, **kwargs):
    return harness.run(fisher_command(data, *options, **kwargs), cwd=harness.ROOT)


def test_fisher_select_show_and_training(data_bin, checkpoint, tmp_path):
    """The whole way: values of a real RoBERTa against the loop, two ranks, another share, a table, D in training."""
    values, mask = tmp_path / "values.safetensors", tmp_path / "mask.safetensors"
    restore = ["--restore-file", checkpoint]
    done = run_fisher(data_bin, *restore, "--fisher", values, "--mask", mask, "--reserve-p", 0.3)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "one example at a time" not in done.stdout
    loop = run_fisher(data_bin, *restore, "--fisher", tmp_path / "loop", "--loop")
    assert loop.returncode == 0, loop.stdout[-3000:]
    manifest, fast = maskfile.read(str(values), "fisher")
    _, slow = maskfile.read(str(tmp_path / "loop"), "fisher")
    assert fast.keys() == slow.keys() and manifest["examples"] == 200
    for name in slow:
        if "k_proj.bias" not in name:  # 0 but for rounding: softmax does not see it
            assert np.linalg.norm(fast[name] - slow[name]) <= 1e-3 * np.linalg.norm(slow[name]), name
    # the language-model head has no gradient here: listed, not counted; nor has fairseq 0.12.2's second set of layers
    without = [p["name"] for p in manifest["parameters"] if p["no_gradient"]]
    layers = [name for name in without if "lm_head" not in name]
    assert not any(name.rsplit(".", 1)[0].endswith(("_proj", "fc1", "fc2", "norm")) for name in layers)
    assert any("lm_head" in name for name in without)

    # two ranks write the same mask
    port = harness.free_port()
    shared = "--distributed-world-size 2 --distributed-no-spawn --distributed-backend gloo --ddp-backend legacy_ddp".split()
    shared += ["--distributed-init-method", f"tcp://127.0.0.1:{port}", "--mask", tmp_path / "two", "--reserve-p", 0.3]
    ranks = [
        Forked(fisher_command(data_bin, *restore, *shared, "--distributed-rank", rank), cwd=harness.ROOT) for rank in range(2)
    ]
    assert [process.wait(timeout=200) for process in ranks] == [0, 0], ranks[0].read() + ranks[1].read()
    mask_manifest, one = maskfile.read(str(mask), "mask")
    _, two = maskfile.read(str(tmp_path / "two"), "mask")
    assert all((one[name] == two[name]).all() for name in one)
    kept = sum(int(x.sum()) for x in one.values())
    assert kept == mask_manifest["kept_entries"] == count_kept(sum(x.size for x in one.values()), 0.3)

    # another share from the same values; a table and a plot
    from fairseq_maskplugins.cli import main

    assert main(["fisher", "select", "--fisher", str(values), "--reserve-p", "0.1", "--mask", str(tmp_path / "small")]) == 0
    _, small = maskfile.read(str(tmp_path / "small"), "mask")
    assert all((one[name] | ~small[name]).all() for name in one)  # the top tenth lies in the top three
    assert main(["fisher", "show", "--mask", str(mask), "--png", str(tmp_path / "shares.png")]) == 0
    assert (tmp_path / "shares.png").read_bytes()[:4] == b"\x89PNG"

    # D in training: outside the child nothing moves
    options = ["--optimizer", "child_tuning_adam", "--child-tuning-mode", "D", "--child-tuning-mask", mask]
    log = harness.train(
        data_bin, tmp_path / "d", *options, *restore, "--reset-optimizer", "--reset-dataloader", "--reset-meters",
        "--max-update", 10, base=FINETUNE,
    )  # fmt: skip
    assert log.losses()
    before, after = harness.load_weights(checkpoint), harness.load_weights(tmp_path / "d" / "checkpoint_last.pt")
    moved = 0
    for name, selected in one.items():
        if name in before:
            selected = torch.from_numpy(selected)
            assert torch.equal(before[name][~selected], after[name][~selected])
            moved += (before[name] != after[name])[selected].sum().item()
    assert moved > 0.5 * kept


def test_masked_language_models_and_other_ways(corpus, checkpoint, tmp_path):
    base = harness.TINY + harness.MLM
    few = ["--restore-file", checkpoint, "--max-examples", 10]
    done = run_fisher(corpus / "bin", *few, "--fisher", tmp_path / "a", "--cover", "layers", base=base)
    assert done.returncode == 0, done.stdout[-3000:]
    loop = run_fisher(corpus / "bin", *few, "--fisher", tmp_path / "b", "--cover", "layers", "--loop", base=base)
    assert loop.returncode == 0, loop.stdout[-3000:]
    manifest, fast = maskfile.read(str(tmp_path / "a"), "fisher")
    _, slow = maskfile.read(str(tmp_path / "b"), "fisher")
    assert manifest["examples"] == 10
    assert all("layer" in name for name in fast) and len(fast) < len(manifest["parameters"])
    for name in (name for name in slow if "k_proj.bias" not in name):
        assert np.linalg.norm(fast[name] - slow[name]) <= 1e-3 * np.linalg.norm(slow[name]), name
    done = run_fisher(corpus / "bin", *few, "--fisher", tmp_path / "c", "--per-batch", "--bf16", base=base)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize(
    "options,message",
    [
        (["--reserve-p", "1.5", "--mask", "m"], "--reserve-p must lie in (0, 1], got 1.5"),
        (["--max-examples", "0", "--mask", "m"], "--max-examples must be at least 1, got 0"),
        ([], "give --fisher FILE, --mask FILE, or both"),
        (["--mask", "m"], "--arch must be one that fairseq knows"),
    ],
)
def test_bad_options(options, message):
    from fairseq_maskplugins.cli import main

    with pytest.raises(UsageError) as raised:
        main(["fisher", "data", *options])
    assert message in str(raised.value)


def test_select_does_not_write_over_the_values(tmp_path):
    from fairseq_maskplugins.cli import main

    path = str(tmp_path / "values")
    manifest = {"parameters": [{"name": "a", "shape": [4], "covered": True}]}
    maskfile.write(path, "fisher", {"a": np.arange(4, dtype=np.float32)}, manifest)
    with pytest.raises(UsageError, match="is one of the input files"):
        main(["fisher", "select", "--fisher", path, "--reserve-p", "0.5", "--mask", path])
    assert maskfile.read(path, "fisher")[1]["a"].tolist() == [0, 1, 2, 3]


def test_without_a_checkpoint_it_stops(data_bin, tmp_path):
    done = run_fisher(data_bin, "--mask", tmp_path / "m", "--save-dir", tmp_path / "none")
    assert done.returncode == 1 and "no such checkpoint; give one with --restore-file" in done.stdout
    assert not (tmp_path / "m").exists()
