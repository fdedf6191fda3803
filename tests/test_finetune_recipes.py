"""The fine-tuning recipes run from text in GLUE layout to a table and a plot."""

import argparse
import importlib.util
import json
import sys

import harness
import pytest

FOLDER = harness.ROOT / "examples" / "finetune"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("glue")
    for split, count, seed in (("train", 80, 21), ("dev", 20, 22)):
        lines = harness.make_lines(count, seed, longest=1)
        rows = "".join(f"{line}\t{int('captain' in line or 'sailor' in line)}\n" for line in lines)
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + rows)
    # what an earlier run left is replaced
    (folder / "out" / "bin" / "input0").mkdir(parents=True)
    (folder / "out" / "bin" / "input0" / "dict.txt").write_text("old 1\n")
    command = [sys.executable, FOLDER / "prepare.py", "glue", folder / "out", "--source", folder, "--vocabulary", "90"]
    harness.run(command, check=True)
    return folder / "out"


def test_from_text_to_a_table(prepared, tmp_path):
    """Each start of fairseq takes seconds, so one method runs; the other one is finished, and not run again."""
    small = "--arch roberta_base --encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 "
    options = ["--arch-options", small + "--encoder-attention-heads 2 --max-positions 128", "--seeds", "1"]
    options += ["--methods", "D", "update", "--updates", "4", "--pretrain-updates", "2", "--fisher-examples", "10"]
    (tmp_path / "update-0.3-1.json").write_text(json.dumps({"accuracy": 61.5}))
    command = [sys.executable, FOLDER / "run.py", prepared, tmp_path]
    harness.run([*command, *options], check=True)
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["D", "update"]
    assert 0 < float(lines[2].split("|")[3]) <= 100
    assert float(lines[3].split("|")[3]) == 61.5
    assert (tmp_path / "scores.png").read_bytes()[:4] == b"\x89PNG"
    # scores of other settings don't get into the same table
    done = harness.run([*command, *options, "--lr", "0.1"])
    assert done.returncode == 1 and "holds runs with --lr 0.0003, got 0.1" in done.stdout


def load_recipe():
    spec = importlib.util.spec_from_file_location("finetune_run", FOLDER / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments(tmp_path):
    return argparse.Namespace(out=tmp_path, data=tmp_path, pretrain_updates=2, updates=4, lr=0.1, num_classes=2)


def test_interrupted_pretraining_goes_on(tmp_path, monkeypatch):
    recipe, commands = load_recipe(), []
    monkeypatch.setattr(recipe, "call", lambda command, log: commands.append(command))
    (tmp_path / "pretrained").mkdir()
    (tmp_path / "pretrained" / "checkpoint_last.pt").touch()  # written after each epoch
    for _ in range(2):
        recipe.pretrain(arguments(tmp_path), [])
    assert len(commands) == 1


def test_fairseq_takes_the_options_of_every_method(tmp_path):
    from fairseq import options

    recipe = load_recipe()
    for method, added in recipe.METHODS.items():
        plain = recipe.finetune_options(arguments(tmp_path), recipe.SMALL.split(), "model.pt", 1)
        command = [recipe.PLUGINS, *plain, "--user-dir", recipe.PLUGINS, *added.format(p=0.3, mask="m").split()]
        parsed = options.parse_args_and_arch(options.get_training_parser(), [str(x) for x in command])
        assert parsed.optimizer == ("adam" if method == "plain" else "child_tuning_adam")
        assert parsed.shorten_method == "truncate"  # long texts count, with their beginning


def test_missing_checkpoint_is_named(tmp_path):
    done = harness.run([sys.executable, FOLDER / "run.py", tmp_path, tmp_path, "--checkpoint", "missing.pt"])
    assert done.returncode == 1 and "missing.pt: no such file" in done.stdout
