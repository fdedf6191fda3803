"""GLUE and CLUE with their published settings: commands, scores, and both from files to a table at toy size."""

import json
import os
import re
import shlex
import sys
from pathlib import Path

import harness
import numpy as np
import pytest
from fairseq import options as fairseq_options

FOLDER = harness.ROOT / "examples" / "finetune"
sys.path.insert(0, str(FOLDER))
import benchmark  # noqa: E402
import run as recipe  # noqa: E402
from scores import measures  # noqa: E402
from tasks import CLUE, GLUE, SUITES, find_folder  # noqa: E402

ARCH = "--arch roberta_large --max-positions 128 --encoder-normalize-before"


def parse(words):
    parser = fairseq_options.get_training_parser()
    return fairseq_options.parse_args_and_arch(parser, input_args=[str(word) for word in words])


def trainings(text):
    """The arguments of every fairseq-train that a dry run shows."""
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words[1:3] == ["-m", "fairseq_cli.train"]:
            yield parse(words[3:])


def dry_run(capsys, *words):
    files = ["--checkpoint", "model.pt", "--dict", "dict.txt", "--arch-options", ARCH]
    benchmark.main([*words, *files, "--dry-run"])
    return capsys.readouterr().out


def test_glue_is_run_with_the_published_settings(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = dry_run(capsys, "glue", "--data", "GLUE", "--out", "out", "--sentencepiece-model", "sp.model", "--seeds", "1", "2")
    found = list(trainings(text))
    assert len(found) == 16 and not list(tmp_path.iterdir())
    tasks = [Path(args.data).parent.parent.name for args in found]
    assert tasks[::2] == SUITES["glue"] and len(set(tasks)) == 8
    for name, args in zip(tasks, found):
        task = GLUE[name]
        assert (args.num_classes, args.batch_size, args.lr) == (task.classes, task.batch, [task.lr])
        updates = (args.max_update, int(args.total_num_update), args.warmup_updates)
        assert updates == (task.updates, task.updates, task.warmup)
        assert args.fp16 and not args.cpu and args.finetune_from_model == str(tmp_path / "model.pt")
        assert args.best_checkpoint_metric == task.scores[0] and args.maximize_best_checkpoint_metric
        assert args.scores == ",".join(score for score in task.scores if score != "accuracy")
        assert args.regression_target == (name == "STS-B") and args.arch == "roberta_large"
    assert text.count("prepare.py glue") == 8


@pytest.mark.parametrize(
    "method, optimizer, arch", [("F", "child_tuning_adam", "roberta_large"), ("droptoken", "adam", "droptoken_roberta_large")]
)
def test_methods_change_the_command(capsys, method, optimizer, arch):
    gpt2 = ["--bpe", "gpt2", "--gpt2-encoder-json", "e.json", "--gpt2-vocab-bpe", "v.bpe"]
    words = ["RTE", "--data", "G", "--out", "o", *gpt2, "--methods", method, "--seeds", "1", "--cpu"]
    (args,) = trainings(dry_run(capsys, *words))
    assert (args.optimizer, args.arch, args.cpu, args.fp16) == (optimizer, arch, True, False)


def test_masks_of_d_are_made_once_a_seed(capsys):
    words = ["RTE", "--data", "G", "--out", "o", "--sentencepiece-model", "s", "--methods", "D", "--seeds", "1", "2"]
    text = dry_run(capsys, *words, "--reserve-p", "0.2", "0.3")
    assert text.count(" fisher select ") == 4 and text.count("--max-examples 1000 --fisher ") == 2
    assert len(list(trainings(text))) == 4
    order = [line.split()[3] for line in text.splitlines() if "fisher" in line or "fairseq_cli.train" in line]
    assert order[:3] == ["fisher", "fisher", order[2]]


def test_clue_counts_epochs(capsys, tmp_path):
    for task, folder in (("CLUEWSC2020", "cluewsc2020_public"), ("OCNLI", "OCNLI")):
        (tmp_path / folder).mkdir()
        target = '"target": {"span1_index": 0, "span1_text": "a", "span2_index": 1, "span2_text": "b"}, "text": "ab"'
        row = "{" + target + ', "sentence1": "a", "sentence2": "b", "label": "true"}\n'
        (tmp_path / folder / CLUE[task].train).write_text(row * 33)
        (tmp_path / folder / "dev.json").write_text(row)
    words = ["CLUEWSC2020", "OCNLI", "--data", str(tmp_path), "--out", "o", "--seeds", "1"]
    wsc, ocnli = trainings(dry_run(capsys, *words))
    assert (wsc.max_update, wsc.batch_size, wsc.warmup_updates, wsc.lr) == (50 * 3, 16, 15, [1e-5])
    assert (ocnli.max_update, ocnli.num_classes, ocnli.lr) == (2 * 3, 3, [3e-5])


@pytest.mark.parametrize(
    "words, message", [(["WNLI"], "TASK must be among .*glue, clue, got WNLI"), (["RTE"], "give the checkpoint's tokenizer")]
)
def test_bad_input_is_named(capsys, words, message):
    with pytest.raises(SystemExit):
        dry_run(capsys, *words, "--data", "G", "--out", "o")
    assert re.search(message, capsys.readouterr().err.splitlines()[-1])


def test_a_dry_run_needs_no_files(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = "RTE --data G --out o --checkpoint m.pt --dict d.txt --sentencepiece-model s --methods plain droptoken --dry-run"
    benchmark.main(words.split())
    text = capsys.readouterr().out
    assert f"# {tmp_path / 'm.pt'} is not here: for --arch ARCH put" in text
    assert text.count(" --arch ARCH ") == 1 + 6 and text.count(" --arch droptoken_ARCH ") == 3 and not os.listdir(tmp_path)


def test_folders_that_are_looked_for_are_named(capsys, tmp_path):
    words = ["--data", str(tmp_path), "--out", "o", "--sentencepiece-model", "s"]
    for task, names in (("TNEWS", "TNEWS, tnews, tnews_public"), ("CLUEWSC2020", "CLUEWSC2020, clue")):
        with pytest.raises(SystemExit, match=f"--data {tmp_path}: has no folder of {task}: none of {names}.* is there"):
            dry_run(capsys, task, *words)
    with pytest.raises(SystemExit, match="has no folder of SST-2: none of SST-2, sst-2, sst-2_public, sst2 is there"):
        find_folder(tmp_path, "SST-2")
    (tmp_path / "sst2").mkdir()
    assert find_folder(tmp_path, "SST-2") == tmp_path / "sst2"


def test_measures_are_those_of_scipy():
    from scipy import stats

    rng = np.random.default_rng(1)
    for _ in range(20):
        x, y = rng.integers(0, 5, 30).astype(float), rng.normal(size=30)
        assert measures.pearson(x, y) == pytest.approx(stats.pearsonr(x, y)[0])
        assert measures.spearman(x, y) == pytest.approx(stats.spearmanr(x, y)[0])
    # by hand: 3 right of class 1, 1 taken for it, 2 missed, 4 right of class 0
    predicted, target = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0]), np.array([1, 1, 1, 0, 1, 1, 0, 0, 0, 0])
    assert measures.f1(predicted, target) == pytest.approx(2 * 3 / (2 * 3 + 1 + 2))
    assert measures.mcc(predicted, target) == pytest.approx((3 * 4 - 1 * 2) / np.sqrt(4 * 5 * 5 * 6))
    constant = np.zeros(10)
    assert measures.mcc(constant, target) == measures.f1(constant, target) == measures.spearman(constant, target) == 0


TOY = "--max-update 3 --total-num-update 3 --warmup-updates 1 --max-epoch 2 --batch-size 16 --num-workers 0".split()


@pytest.fixture(scope="module")
def checkpoint(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrained")
    harness.train(corpus / "bin", folder, "--max-update", 1, "--disable-validation", "--no-epoch-checkpoints")
    return folder / "checkpoint_last.pt"


def write_tasks(folder):
    """CoLA, STS-B and TNEWS in their own layouts; class 1 is the rarer one, and so not the first in the dictionary."""
    for task, header in (("CoLA", ""), ("STS-B", "index\tsentence1\tsentence2\tscore\n")):
        (folder / task).mkdir(parents=True)
        for split, count, seed in (("train", 48, 31), ("dev", 24, 32)):
            lines = harness.make_lines(count, seed, longest=1)
            if task == "CoLA":
                rows = [f"x\t{int('captain' in line)}\t\t{line}\n" for line in lines]
            else:
                rows = [f"{i}\t{line}\t{lines[-i]}\t{i % 6}.0\n" for i, line in enumerate(lines)]
            (folder / task / f"{split}.tsv").write_text(header + "".join(rows))
    (folder / "tnews_public").mkdir()
    for split, count in (("train", 40), ("dev", 10)):
        rows = [{"label": str(100 + i % 2), "sentence": line} for i, line in enumerate(harness.make_lines(count, 33))]
        (folder / "tnews_public" / f"{split}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_from_files_to_a_table(corpus, checkpoint, tmp_path, monkeypatch, capsys):
    """Classes and numbers, GLUE and CLUE, prepared in this process, trained as these tests run fairseq, and then kept."""
    write_tasks(tmp_path / "GLUE")
    started = []

    def call(command, log, append=False):
        started.append(command)
        Path(log).write_text(harness.run(command, check=True).stdout)

    monkeypatch.setattr(recipe, "call", call)
    words = ["CoLA", "STS-B", "TNEWS", "--data", tmp_path / "GLUE", "--out", tmp_path / "out", "--checkpoint", checkpoint]
    words += ["--dict", corpus / "bin" / "dict.txt", "--sentencepiece-model", corpus / "sp.model", "--seeds", 1, "--cpu"]
    words = [str(word) for word in [*words, "--", *TOY]]
    benchmark.main(words)
    assert len(started) == 3
    lines = (tmp_path / "out" / "table.md").read_text().splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [row[:4] for row in rows] == [
        ["CoLA", "plain", "all", "mcc"],
        ["CoLA", "plain", "all", "accuracy"],
        ["STS-B", "plain", "all", "pearson"],
        ["STS-B", "plain", "all", "spearman"],
        ["TNEWS", "plain", "all", "accuracy"],
    ]
    assert all(-100 <= float(row[4]) <= 100 for row in rows)
    assert not (tmp_path / "out" / "CoLA" / "runs" / "plain-1.run").exists()
    labels = (tmp_path / "out" / "CoLA" / "data" / "bin" / "label" / "dict.txt").read_text()
    assert labels.startswith("0 ")
    benchmark.main(words)
    assert len(started) == 3
    words[words.index("--sentencepiece-model") + 1] = str(corpus / "train.txt")
    with pytest.raises(SystemExit, match="was prepared with another sentencepiece_model; choose another --out"):
        benchmark.main(words)
    words[words.index("--checkpoint") + 1] = "missing.pt"
    with pytest.raises(SystemExit, match="--checkpoint missing.pt: no such file or folder"):
        benchmark.main(words)


def test_class_1_is_the_positive_one(corpus, tmp_path):
    """Over batches, whatever its place in the label dictionary: against the formulas on all predictions."""
    import torch
    from fairseq.logging import metrics
    from scores import SentenceScoresConfig, SentenceScoresCriterion

    class Labels:
        indices, nspecial = {"0": 4, "1": 5}, 4

        def index(self, word):
            return self.indices[word]

    class Task:
        label_dictionary, target_dictionary, source_dictionary = Labels(), None, None

    class Model:
        classification_heads, args = {"sentence_classification_head": None}, object()

        def __call__(self, logits, **unused):
            return logits, None

        def get_targets(self, sample, output):
            return sample["target"]

    rng = np.random.default_rng(2)
    logits, target = torch.tensor(rng.normal(size=(20, 2))), torch.tensor(rng.integers(0, 2, (20, 1)))
    criterion = SentenceScoresCriterion(SentenceScoresConfig(scores="mcc,f1"), Task()).eval()
    logs = []
    for part in (slice(0, 12), slice(12, 20)):
        sample = {"net_input": {"logits": logits[part]}, "target": target[part], "ntokens": 9}
        logs.append(criterion(Model(), sample)[2])
    with metrics.aggregate(new_root=True) as found:
        for log in logs:  # batch by batch, as the trainer does
            criterion.reduce_metrics([log])
    values = found.get_smoothed_values()
    predicted, truth = logits.argmax(1).numpy(), target.view(-1).numpy()
    assert values["mcc"] == pytest.approx(100 * measures.mcc(predicted, truth), abs=0.01)
    assert values["f1"] == pytest.approx(100 * measures.f1(predicted, truth), abs=0.01)
    assert values["accuracy"] == pytest.approx(100 * (predicted == truth).mean(), abs=0.1)
    with pytest.raises(ValueError, match="--scores must be among mcc, f1 for this task, got pearson"):
        SentenceScoresCriterion(SentenceScoresConfig(scores="pearson"), Task())
    Labels.indices = {"no": 4, "yes": 5}
    with pytest.raises(ValueError, match="--scores f1: the label dictionary has no class 1"):
        SentenceScoresCriterion(SentenceScoresConfig(scores="f1"), Task())
