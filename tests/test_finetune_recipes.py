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
    command = [sys.executable, FOLDER / "prepare.py", "glue", folder / "out", "--source", folder, "--task", "SST-2"]
    harness.run([*command, "--vocabulary", "90"], check=True)
    return folder / "out"


def test_from_text_to_a_table(prepared, tmp_path):
    """Each start of fairseq takes seconds, so one method runs; the other one is finished, and not run again."""
    small = "--arch roberta_base --encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 "
    options = ["--arch-options", small + "--encoder-attention-heads 2 --max-positions 128", "--seeds", "1"]
    options += ["--methods", "D", "update", "--updates", "4", "--pretrain-updates", "2", "--fisher-examples", "10"]
    (tmp_path / "update-0.3-1.json").write_text(json.dumps({"score": 61.5}))
    command = [sys.executable, FOLDER / "run.py", prepared, tmp_path]
    harness.run([*command, *options], check=True)
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["D", "update"]
    assert 0 < float(lines[2].split("|")[3]) <= 100
    assert float(lines[3].split("|")[3]) == 61.5
    assert (tmp_path / "scores.png").read_bytes()[:4] == b"\x89PNG"
    # scores of other settings don't get into the same table
    done = harness.run([*command, *options, "--lr", "0.1"])
    assert done.returncode == 1 and "holds runs with --lr 0.002, got 0.1" in done.stdout


# GLUE's files as they are distributed, with | for TAB: a row, one with an open quote, one without a label or cut off
GLUE = {
    "CoLA": 'gj04|1||They drank the pub.;bc01|0|*|"Open quote.;x|||no label',
    "SST-2": 'sentence|label;a fine film |1;"dull |0;no label |',
    "MRPC": '\ufeffQuality|#1 ID|#2 ID|#1 String|#2 String;1|1|2|One .|Two .;0|3|4|"A|B;|5|6|A|B',
    "STS-B": "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2|score;"
    '0|g|f|y|1|n|n|A plane.|An air plane.|5.000;1|g|f|y|1|n|n|"A|B|0.500;2|g|f|y|1|n|n|A|B',
    "QQP": 'id|qid1|qid2|question1|question2|is_duplicate;0|1|2|Why?|How?|0;1|3|4|"Who?|Who?|1;2|5|6|cut off',
    "MNLI": "index|promptID|pairID|genre|sentence1|sentence2|label1|gold_label;"
    '0|1|1e|g|A man.|A person.|entailment|entailment;1|1|1n|g|"A|B|neutral|neutral;2|1|1n|g|A|B|neutral|-',
    "QNLI": 'index|question|sentence|label;0|When?|In 1934.|entailment;1|"A|B|not_entailment;2|A|B',
    "RTE": 'index|sentence1|sentence2|label;0|It rains.|It is wet.|entailment;1|"A|B|not_entailment;2|A|B|',
    "WNLI": 'index|sentence1|sentence2|label;0|A|B|1;1|"A|B|0;2|A|B|',
}


def glue_file(task):
    return GLUE[task].replace("|", "\t").replace(";", "\r\n" if task == "MRPC" else "\n") + "\n"


@pytest.mark.parametrize("task", GLUE)
def test_glue_tasks_in_their_own_layout(task, tmp_path, monkeypatch):
    """Every row with a label arrives, with its quotes; pairs become two inputs with one dictionary."""
    recipe = load_recipe("prepare")
    texts = 1 if task in ("CoLA", "SST-2") else 2
    source = tmp_path / task
    source.mkdir()
    for name in ("train", "dev_matched" if task == "MNLI" else "dev"):
        (source / f"{name}.tsv").write_bytes(glue_file(task).encode("utf-8"))
    rows = list(recipe.read_glue(source / "train.tsv", task))
    assert len(rows) == 2 and all(len(row[0]) == texts for row in rows)
    assert rows[1][0][0].startswith('"') and rows[0][1] in ("0", "1", "5.000", "entailment")

    calls = []
    monkeypatch.setattr(recipe, "preprocess", lambda folder, *options: calls.append((folder.name, options)))
    monkeypatch.setattr(recipe, "load_pieces", lambda args, rows: argparse.Namespace(encode=lambda text, **_: [text]))
    out = tmp_path / "out"
    (out / "bin").mkdir(parents=True)
    monkeypatch.setattr(sys, "argv", ["prepare.py", "glue", str(out), "--source", str(source)])
    recipe.main()
    names = ["input0", "input1"][:texts] + ([] if task == "STS-B" else ["label"])
    assert [name for name, _ in calls] == names
    if texts == 2:
        assert calls[1][1][-1] == out / "bin" / "input0" / "dict.txt"
    if task == "STS-B":  # a regression reads numbers, as text
        assert (out / "bin" / "label" / "valid.label").read_text() == "5.000\n0.500\n"
    # what is written can be read again
    assert list(recipe.read_glue(out / "dev.tsv", "SST-2" if texts == 1 else "RTE")) == rows


def test_files_of_another_task_are_named(tmp_path):
    recipe = load_recipe("prepare")
    (tmp_path / "train.tsv").write_text(glue_file("SST-2"))
    with pytest.raises(SystemExit, match="train.tsv: the first line has no columns sentence1, sentence2, label"):
        list(recipe.read_glue(tmp_path / "train.tsv", "RTE"))
    with pytest.raises(SystemExit, match="dev.tsv: no such file"):
        list(recipe.read_glue(tmp_path / "dev.tsv", "RTE"))


def load_recipe(name="run"):
    spec = importlib.util.spec_from_file_location(f"finetune_{name}", FOLDER / f"{name}.py")
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
        command = [
            recipe.PLUGINS,
            *plain,
            "--user-dir",
            recipe.PLUGINS,
            *added.format(p=0.3, mask="m", drop=0.1).split(),
        ]
        parsed = options.parse_args_and_arch(options.get_training_parser(), [str(x) for x in command])
        assert parsed.optimizer == ("child_tuning_adam" if method in recipe.GRID else "adam")
        assert (parsed.arch == "droptoken_roberta_base") == (method == "droptoken")
        assert parsed.shorten_method == "truncate"  # long texts count, with their beginning


def test_scores_are_read_from_a_log(tmp_path):
    """fairseq logs a loss divided by log 2; a squared error of 2 is 2.885 there."""
    recipe, log = load_recipe(), tmp_path / "log"
    log.write_text('{"valid_loss": "4.1", "valid_accuracy": "61.5"}\n{"valid_loss": "2.885", "valid_accuracy": "60"}\n')
    assert recipe.best_score(log, regression=False) == 61.5
    assert recipe.best_score(log, regression=True) == pytest.approx(2, abs=1e-3)
    log.write_text('{"valid_loss": "nan"}\n')
    with pytest.raises(SystemExit, match="log: no loss on the validation data that is a number"):
        recipe.best_score(log, regression=True)


def test_missing_checkpoint_is_named(tmp_path):
    done = harness.run([sys.executable, FOLDER / "run.py", tmp_path, tmp_path, "--checkpoint", "missing.pt"])
    assert done.returncode == 1 and "missing.pt: no such file" in done.stdout
