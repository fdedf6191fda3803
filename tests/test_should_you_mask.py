"""The study of ``examples/should_you_mask_15`` at toy size: from text to a table and a figure, killed and gone on with."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time

import harness
import pytest

FOLDER = harness.ROOT / "examples" / "should_you_mask_15"
SMALL = (
    "--arch roberta_base --encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 "
    "--max-positions 16"
)
OPTIONS = (
    "--only none 0.2-0.4 --seeds 1 2 --tasks harbour --updates 10 --rows 4 --length 16 --finetune-updates 2 --vocabulary 90"
).split() + ["--model-options", SMALL]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    (folder / "harbour").mkdir()
    (folder / "pretrain.txt").write_text("\n".join(harness.make_lines(200, 1)) + "\n")
    for split, count, seed in (("train", 64, 2), ("dev", 20, 3), ("test", 20, 4)):
        lines = harness.make_lines(count, seed, longest=1)
        rows = "".join(f"{line}\t{'harbour' in line}\n" for line in lines)
        (folder / "harbour" / f"{split}.tsv").write_text(rows)
    return folder


def command(out, *options):
    return [sys.executable, str(FOLDER / "run.py"), str(out), *map(str, options)]


def load(name):
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location(f"should_you_mask_{name}", FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
        for other in ("data", "jobs", "report", "study", "commands", "corpora"):
            sys.modules.pop(other, None)
    return module


@pytest.mark.slow
def test_a_killed_study_goes_on(text, tmp_path):
    """Killed with its processes once the first model is pretrained; the same command finishes what is left."""
    out = tmp_path / "out"
    study = subprocess.Popen(
        command(out, "--text", text, *OPTIONS), start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    first = out / "runs" / "0.2-0.4-seed1-pretrain.json"
    deadline = time.monotonic() + 120
    while not first.exists():
        assert study.poll() is None and time.monotonic() < deadline, study.stdout.read().decode()
        time.sleep(0.05)
    os.killpg(study.pid, signal.SIGKILL)
    study.communicate()
    before = {path.name: path.stat().st_mtime_ns for path in (out / "runs").glob("*.json")}
    assert first.name in before and not (out / "table.md").exists()

    done = harness.run(command(out, "--text", text, *OPTIONS))
    assert done.returncode == 0, done.stdout
    for name, changed in before.items():
        assert (out / "runs" / name).stat().st_mtime_ns == changed, f"{name} was run again"
    results = json.loads((out / "results.json").read_text())
    assert [(r["setting"], r["seed"]) for r in results["runs"]] == [
        (setting, seed) for seed in (1, 2) for setting in ("none", "0.2-0.4")
    ]
    for run in results["runs"]:
        assert 0 <= run["harbour"]["test"] <= 100 and 0 <= run["harbour"]["dev"] <= 100
        if run["setting"] != "none":
            assert run["pretrain"]["updates"] == 10
            # rows of at most 15 tokens on average over a logging interval of one update
            assert run["pretrain"]["corruption"] == pytest.approx(run["rates"][0], abs=0.06)
            assert run["pretrain"]["prediction"] == pytest.approx(run["rates"][1], abs=0.06)
            assert 3 < run["loss"]["loss"] < 8  # bits; about log2 of 90 pieces after ten updates
    lines = (out / "table.md").read_text().splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:4]] == ["no pretraining", "20% corrupted, 40% predicted"]
    tests = [run["harbour"]["test"] for run in results["runs"] if run["setting"] == "0.2-0.4"]
    assert f"{sum(tests) / 2:.1f} ± " in lines[3] and f"({min(tests):.1f} to {max(tests):.1f})" in lines[3]
    assert (out / "figure.png").read_bytes()[:4] == b"\x89PNG"

    # one whose result is lost, its checkpoint not: it goes on from there, and nothing else runs
    (out / "runs" / "0.2-0.4-seed2-pretrain.json").unlink()
    again = harness.run(command(out, "--text", text, *OPTIONS))
    assert again.returncode == 0 and "\n1 of 8 steps to do" in "\n" + again.stdout
    found = json.loads((out / "runs" / "0.2-0.4-seed2-pretrain.json").read_text())
    assert not found["whole"] and found["corruption"] == pytest.approx(0.2, abs=0.06)
    assert "of 1 that were interrupted only the last part counts" in (out / "table.md").read_text()
    other = harness.run(command(out, "--text", text, *OPTIONS, "--updates", 9))
    assert other.returncode == 1
    assert f"{out}: holds a study with --updates 10, got 9; choose another folder" in other.stdout


def test_a_dry_run_writes_nothing(tmp_path):
    done = harness.run(command(tmp_path / "out", "--dry-run", "--only", "0.4-0.2", "none", "--seeds", 5))
    assert done.returncode == 0, done.stdout
    names = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("# ")]
    assert names == [f"none-seed5-{task}" for task in ("topics", "reviews")] + [
        f"0.4-0.2-seed5-{part}" for part in ("pretrain", "loss", "topics", "reviews")
    ]
    assert "--corruption-rate 0.4 --prediction-rate 0.2" in done.stdout
    assert not (tmp_path / "out").exists()


def run_of(setting, seed, rates, loss, score, began):
    step = {"processor_seconds": 6.0, "whole": True}
    parts = {"task": {**step, "dev": 0.0, "test": score, "time": [began + 10, began + 14]}}
    if rates:
        parts["pretrain"] = {**step, "time": [began, began + 4]}
        parts["loss"] = {**step, "loss": loss, "time": [began + 2, began + 10]}
    return {"setting": setting, "seed": seed, "rates": rates, **parts}


def test_the_table_by_hand(tmp_path):
    """Scores 50, 53, 59: mean 54, deviations -4, -1, 5, so a variance of 42 / 2 = 21 and 4.58; losses 8, 9, 10: 9 and 1.

    Times: 0-4, 2-10 and 10-14 make 14 seconds, the next run begins at 100: 42 in three runs; without pretraining 4 more.
    """
    report = load("report")
    runs = [run_of("0.4", seed, (0.4, 0.4), 7 + seed, score, 100 * seed) for seed, score in ((1, 50), (2, 53), (3, 59))]
    runs += [run_of("none", 1, None, None, 40, 400)]
    settings = dict.fromkeys(("updates", "rows", "length", "finetune_updates"), "1")
    times = report.sum_times(runs)
    assert times == {"processor": 60.0, "wall": 46.0, "interrupted": 0}
    text = report.write_table(runs, ["task"], settings, {"task": {"train": 10, "test": 2000}}, times, 0.15)
    lines = text.splitlines()
    assert lines[2] == "| 40% | 9.000 ± 1.000 (8.000 to 10.000) | 54.0 ± 4.6 (50.0 to 59.0) | 6 |"
    assert lines[3] == "| no pretraining | - | 40.0 | - |"
    assert "10 labelled texts, 2,000 in the test" in text
    assert "1 minutes of processor time in 1 minutes" in text


@pytest.mark.parametrize(
    "options, message",
    [
        (["--only", "0.5"], "invalid choice: '0.5'"),
        (["--updates", "0"], "argument --updates: must be above 0, got 0"),
        (["--tasks", "topics", "mnli"], "--tasks topics mnli: without --text there are topics and reviews"),
        (["--text", "missing"], "pretrain.txt: no such file"),
    ],
)
def test_wrong_options_are_named(options, message, tmp_path):
    done = harness.run(command(tmp_path / "out", *options))
    assert done.returncode in (1, 2) and message in done.stdout.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_a_step_that_fails_is_named_with_its_log(text, tmp_path):
    done = harness.run(command(tmp_path / "out", "--text", text, *OPTIONS, "--vocabulary", 9000))
    line = done.stdout.splitlines()[-1]
    assert done.returncode == 1 and f"{tmp_path / 'out' / 'prepare.log'}: the command failed, with status 1: " in line
    assert "--vocabulary 9000: sentencepiece can't make it of" in line
    assert not (tmp_path / "out" / "data").exists()


def test_splits_share_no_text(tmp_path, monkeypatch):
    """What is held out of a task is in no pretraining text; labelled texts are, without their labels."""
    data = load("data")
    article = data.corpora.Article
    found = [article(str(i), "Arts" if i % 2 else "Uncategorized", f"article {i} is long") for i in range(60)]
    monkeypatch.setattr(data.corpora, "fetch", lambda name, folder: name)
    monkeypatch.setattr(data.corpora, "read_wiki", lambda _: found)
    monkeypatch.setattr(data.corpora, "read_reviews", lambda _: [(f"review {i}", i % 2) for i in range(40)])
    monkeypatch.setattr(data, "HELD_OUT", {"dev": 3, "test": 5})
    data.split_texts(tmp_path, tmp_path / "text", labels=7)
    pretrain = (tmp_path / "text" / "pretrain.txt").read_text().splitlines()
    assert len(pretrain) == len(set(pretrain)) == 30 + (30 - 8) + (40 - 8)
    for task in ("topics", "reviews"):
        parts = {split: {t for t, _ in data.read_rows(tmp_path / "text" / task / f"{split}.tsv")} for split in data.SPLITS}
        assert [len(parts[split]) for split in data.SPLITS] == [7, 3, 5]
        assert parts["train"] <= set(pretrain) and not (parts["dev"] | parts["test"]) & set(pretrain)
        assert not parts["dev"] & parts["test"]
