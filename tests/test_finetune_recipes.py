"""The fine-tuning recipes run from text in GLUE layout to a table and a plot."""

import argparse
import json
import sys
from pathlib import Path

import harness
import pytest

FOLDER = harness.ROOT / "examples" / "finetune"
sys.path.insert(0, str(FOLDER))
import outcome  # noqa: E402
import prepare  # noqa: E402
import run as recipe  # noqa: E402


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
    prepare.main(["glue", str(folder / "out"), "--source", str(folder), "--task", "SST-2", "--vocabulary", "90"])
    return folder / "out"


def test_from_text_to_a_table(prepared, tmp_path, monkeypatch):
    """One method runs, as these tests run fairseq, D with its mask; the other one is finished, and not run again."""
    started = []

    def call(command, log, append=False):
        started.append(command)
        Path(log).write_text(harness.run(command, check=True).stdout)

    monkeypatch.setattr(recipe, "call", call)
    small = "--arch roberta_base --encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 "
    options = ["--arch-options", small + "--encoder-attention-heads 2 --max-positions 128", "--seeds", "1"]
    options += ["--methods", "D", "update", "--updates", "4", "--pretrain-updates", "2", "--fisher-examples", "10"]
    (tmp_path / "update-0.3-1.json").write_text(json.dumps({"scores": {"accuracy": 61.5}}))
    command = [str(prepared), str(tmp_path)]
    recipe.main([*command, *options])
    assert len(started) == 4  # pretraining, Fisher values, the mask, fine-tuning
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["D", "update"]
    assert 0 < float(lines[2].split("|")[3]) <= 100
    assert float(lines[3].split("|")[3]) == 61.5
    assert (tmp_path / "scores.png").read_bytes()[:4] == b"\x89PNG"
    recipe.main([*command, *options])
    assert len(started) == 4
    # scores of other settings don't get into the same table
    with pytest.raises(SystemExit, match="holds runs with --lr 0.002, got 0.1; choose another folder"):
        recipe.main([*command, *options, "--lr", "0.1"])


def arguments(tmp_path):
    settings = dict(pretrain_updates=2, updates=4, warmup_updates=0, batch_size=8, lr=0.1, num_classes=2, gpu=False)
    return argparse.Namespace(out=tmp_path, data=tmp_path, scores=["accuracy"], dry_run=False, **settings)


def test_interrupted_pretraining_goes_on(tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(recipe, "call", lambda command, log: commands.append(command))
    (tmp_path / "pretrained").mkdir()
    (tmp_path / "pretrained" / "checkpoint_last.pt").touch()  # written after each epoch
    for _ in range(2):
        recipe.pretrain(arguments(tmp_path), [])
    assert len(commands) == 1


def test_fairseq_takes_the_options_of_every_method(tmp_path):
    from fairseq import options

    for method, added in recipe.METHODS.items():
        plain = recipe.finetune_options(arguments(tmp_path), recipe.SMALL.split(), "model.pt", 1)
        command = [
            recipe.PLUGINS,
            *plain,
            "--user-dir",
            recipe.SCORES,
            *added.format(p=0.3, mask="m", drop=0.1, arch="roberta_base").split(),
        ]
        parsed = options.parse_args_and_arch(options.get_training_parser(), [str(x) for x in command])
        assert parsed.optimizer == ("child_tuning_adam" if method in recipe.GRID else "adam")
        assert (parsed.arch == "droptoken_roberta_base") == (method == "droptoken")
        assert parsed.shorten_method == "truncate"  # long texts count, with their beginning


def test_scores_are_read_from_a_log(tmp_path):
    """All scores of the epoch whose first one is best."""
    log = tmp_path / "log"
    epochs = ['{"valid_mcc": 10.5, "valid_accuracy": "70"}', '{"valid_mcc": "20", "valid_accuracy": "61.5"}']
    log.write_text("".join(f"2026 | INFO | valid | {epoch}\n" for epoch in epochs))
    assert recipe.best_scores(log, ["accuracy", "mcc"]) == {"accuracy": 70, "mcc": 10.5}
    assert recipe.best_scores(log, ["mcc", "accuracy"]) == {"accuracy": 61.5, "mcc": 20}
    log.write_text('x | valid | {"valid_accuracy": "nan"}\n')
    with pytest.raises(SystemExit, match="log: no accuracy on the validation data that is a number"):
        recipe.best_scores(log, ["accuracy"])


def test_scores_are_said_in_words(tmp_path):
    """By hand: 60 and 64 have a mean of 62 and a standard deviation of 2 times the root of 2; one score has none."""
    two = [{"mcc": 60.0, "accuracy": 70.0}, {"mcc": 64.0, "accuracy": 71.5}]
    assert outcome.describe("F", 0.3, two) == "F 0.3: mcc, %: 60.00 64.00; accuracy, %: 70.00 71.50"
    assert outcome.describe("plain", 1.0, two[:1]) == "plain: mcc, %: 60.00; accuracy, %: 70.00"
    lines = outcome.write_table(tmp_path / "table.md", [("F", 0.3, two)], [1, 2], ["mcc", "accuracy"])
    assert lines[2] == "| F | 0.3 | 62.00 | 2.83 | 70.75 | 60.00 | 64.00 |"
    lines = outcome.write_table(tmp_path / "table.md", [("plain", 1.0, two[:1])], [1], ["mcc"])
    assert lines[2] == "| plain | all | 60.00 | n/a (one seed) | 60.00 |"
