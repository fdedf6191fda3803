"""``examples/squad``: files, windows, answers and scores against small cases by hand, and a whole run at toy size."""

import json
import shlex
import sys
from pathlib import Path

import harness
import numpy as np
import pytest

FOLDER = harness.ROOT / "examples" / "squad"
sys.path.insert(0, str(FOLDER))
import squad  # noqa: E402
import training  # noqa: E402

PLACES = ("harbour", "clock", "station", "map", "garden")


@pytest.fixture(scope="module")
def recipe():
    import importlib.util

    spec = importlib.util.spec_from_file_location("squad_run", FOLDER / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_squad(path, count, seed, impossible=False):
    """A file in SQuAD's layout: what did they describe, forget, paint ... in a text of some sentences."""
    paragraphs = []
    for i, line in enumerate(harness.make_lines(count, seed, longest=6)):
        place = next((place for place in PLACES if place in line and not (impossible and i % 4 == 0)), None)
        answers = [{"text": place, "answer_start": line.index(place)}] if place else []
        entry = {"id": f"q{seed}-{i}", "question": "What was it that they  described? ", "answers": answers}
        if impossible:
            entry["is_impossible"] = not answers
        if answers or impossible:
            paragraphs.append({"context": line, "qas": [entry]})
    path.write_text(json.dumps({"version": "2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


@pytest.fixture(scope="module")
def exported(corpus, tmp_path_factory):
    """The folder of a tiny pre-norm model with 64 positions, and its checkpoint."""
    folder = tmp_path_factory.mktemp("squad")
    options = ["--encoder-normalize-before", "--max-update", 1, "--disable-validation", "--no-epoch-checkpoints"]
    harness.train(*(corpus / "bin", folder, *options, "--bpe", "sentencepiece", "--sentencepiece-model", corpus / "sp.model"))
    tool = [sys.executable, "-m", "fairseq_maskplugins.cli", "export-hf"]
    harness.run([*tool, folder / "checkpoint_last.pt", folder / "hf"], check=True)
    return folder


def test_windows_hold_answers_where_they_stand(exported, tmp_path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(exported / "hf"))
    questions = squad.read_squad(write_squad(tmp_path / "train.json", 30, 1, impossible=True))
    assert any(not question.answers for question in questions)
    windows = squad.make_windows(tokenizer, questions, 40, 10)
    assert len(windows) > len(questions) and all(len(window.input_ids) <= 40 for window in windows)
    covered = set()
    for window in windows:
        question = questions[window.question]
        context = [span for span in window.spans if span[0] >= 0]
        if window.end:
            text, start = question.answers[0]
            found = question.context[window.spans[window.start][0] : window.spans[window.end][1]]
            assert found.strip() == text
            covered.add(window.question)
        else:  # the answer is not whole in it, or there is none
            assert not question.answers or not any(
                context[0][0] <= start and start + len(text) <= context[-1][1] for text, start in question.answers
            )
    assert covered == {i for i, question in enumerate(questions) if question.answers}
    for number, question in enumerate(questions):  # every character is in a window
        seen = {place for w in windows if w.question == number for a, b in w.spans if a >= 0 for place in range(a, b)}
        assert seen >= {i for i, c in enumerate(question.context) if not c.isspace()}
    long = squad.Question("q", "why " * 200, questions[0].context, ())
    assert all(len(window.input_ids) <= 40 for window in squad.make_windows(tokenizer, [long], 40, 10))


def window(number, *spans):
    return squad.Window(number, [0] * len(spans), list(spans), 0, 0)


def test_the_best_span_of_all_windows_counts():
    out = (-1, -1)
    questions = [squad.Question("a", "?", "one two three", ()), squad.Question("b", "?", "four", ())]
    windows = [window(0, out, (0, 3), (3, 7)), window(0, out, (3, 7), (7, 13)), window(1, out, (0, 4))]
    starts = [np.array(row) for row in ([9.0, 1, 0], [2.0, 3, 0], [5.0, 1])]
    ends = [np.array(row) for row in ([9.0, 4, 0], [1.0, 0, 3], [5.0, 1])]
    assert squad.best_spans(windows, starts, ends, questions) == {"a": "two three", "b": "four"}
    # an answer has few tokens
    assert squad.best_spans(windows, starts, ends, questions, longest=1)["a"] == "one"
    # the lowest sum at <s> is 3 for a, which 6 is above, and 10 for b
    assert squad.best_spans(windows, starts, ends, questions, null=True) == {"a": "two three", "b": ""}
    # the end does not stand before the start
    starts, ends = [np.array([0.0, 0, 9])], [np.array([0.0, 9, 0])]
    assert squad.best_spans(windows[:1], starts, ends, questions[:1])["a"] in ("one", "two")


def test_scores_are_the_official_ones():
    def question(name, *golds):
        return squad.Question(name, "?", "", tuple((gold, 0) for gold in golds))

    questions = [question("a", "The harbour!", "x"), question("b", "a broken clock"), question("c", "p q r s"), question("d")]
    answers = {"a": "harbour", "b": "clock tower", "c": "nothing", "d": ""}
    found = squad.evaluate(answers, questions)
    # a: article, case and marks do not count; b: 1 word of 2 in common each way; c: none; d: none, rightly
    assert found["exact"] == 50 and found["f1"] == pytest.approx(100 * (1 + 0.5 + 0 + 1) / 4)
    assert found["HasAns_exact"] == pytest.approx(100 / 3, abs=1e-3) and found["NoAns_f1"] == 100 and found["total"] == 4
    assert "NoAns_f1" not in squad.evaluate(answers, questions[:3])
    assert squad.evaluate({}, questions[:1])["f1"] == 0


def test_from_checkpoint_to_a_table(recipe, corpus, exported, tmp_path, monkeypatch):
    """SQuAD 2.0: exported, trained for two epochs, scored; a run that was interrupted after the first one ends the same."""
    started = []

    def call(command, log, append=False):
        started.append(command)
        Path(log).write_text(harness.run(command, check=True).stdout)

    monkeypatch.setattr(recipe, "call", call)
    files = {"train": write_squad(tmp_path / "train.json", 24, 3, True), "dev": write_squad(tmp_path / "dev.json", 8, 4, True)}
    words = ["--checkpoint", exported / "checkpoint_last.pt", "--cpu", "--batch-size", 16, "--lr", 1e-3, "--epochs", 2]
    words += [part for name, path in files.items() for part in (f"--{name}", path)]

    def run(out, *more):
        recipe.main([str(word) for word in [*words, "--out", out, *more]])

    run(tmp_path / "whole", "--keep")
    assert started[0][:4] == [sys.executable, "-m", "fairseq_maskplugins.cli", "export-hf"] and len(started) == 1
    found = json.loads((tmp_path / "whole" / "seed-1" / "scores.json").read_text())
    assert set(found) == {f"{kind}{name}" for kind in ("", "HasAns_", "NoAns_") for name in ("exact", "f1")} | {"total"}
    answers = json.loads((tmp_path / "whole" / "seed-1" / "predictions.json").read_text())
    dev = squad.read_squad(files["dev"])
    assert set(answers) == {question.id for question in dev}
    assert all(answers[question.id] in question.context for question in dev)
    lines = (tmp_path / "whole" / "table.md").read_text().splitlines()
    assert lines[0].startswith("| seed | exact, % | f1, % |") and lines[-1].startswith("| mean | ")
    names = {path.name for path in (tmp_path / "whole" / "seed-1" / "model").iterdir()}
    assert {"config.json", "tokenizer.json"} <= names and not list(tmp_path.rglob("*.part"))

    calls, save = [], training.save
    with monkeypatch.context() as patch:

        def save_and_stop(path, state):
            save(path, state)
            raise KeyboardInterrupt

        patch.setattr(training, "save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "cut")
    monkeypatch.setattr(training, "save", lambda path, state: (calls.append(state["epoch"]), save(path, state)))
    run(tmp_path / "cut", "--keep")
    assert calls == [2]
    weights = [tmp_path / name / "seed-1" / "model" / "model.safetensors" for name in ("whole", "cut")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    run(tmp_path / "cut")  # nothing is left to do
    assert calls == [2] and len(started) == 2
    with pytest.raises(SystemExit, match="cut: holds runs with --lr 0.001, got 0.01; choose another --out"):
        run(tmp_path / "cut", "--lr", 0.01)


def test_dry_run_shows_both_commands(recipe, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = "--checkpoint m.pt --dict d.txt --bpe gpt2 --train t.json --dev v.json --out my --seeds 1 2 --cpu --dry-run"
    recipe.main(words.split())
    export, train = map(shlex.split, capsys.readouterr().out.splitlines())
    at = export.index("export-hf")
    assert export[at + 1 :] == [*(str(tmp_path / x) for x in ("m.pt", "my/model")), *"--dict".split(), str(tmp_path / "d.txt"),
                                "--bpe", "gpt2", "--masked-lm"]  # fmt: skip
    monkeypatch.setattr(Path, "exists", lambda path: True)
    args = recipe.parse(train[2:])
    assert (args.model, args.train) == (tmp_path / "my" / "model", tmp_path / "t.json")
    assert (args.seeds, args.cpu, args.epochs, args.batch_size, args.lr) == ([1, 2], True, 2, 48, 1.5e-5)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "is no file of SQuAD"),
        ('{"data": [{"paragraphs": [{"context": "x", "qas": [{"id": 1}]}]}]}', "is no file of SQuAD, .*'question'"),
        ('{"data": []}', "holds no questions"),
    ],
)
def test_bad_files_are_named(tmp_path, text, message):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(SystemExit, match=f"t.json: {message}"):
        squad.read_squad(tmp_path / "t.json")
    with pytest.raises(SystemExit, match="missing.json: can't read it"):
        squad.read_squad(tmp_path / "missing.json")


@pytest.mark.parametrize(
    "words, message",
    [
        ("--train missing.json", "--train .*missing.json: no such file"),
        ("--length 65", "--length must lie between 32 and the model's positions, 64, got 65"),
        ("--length 60 --overlap 21", "--overlap must lie between 0 and a third of --length, 20, got 21"),
    ],
)
def test_bad_options_are_named(recipe, exported, tmp_path, words, message):
    file = write_squad(tmp_path / "t.json", 5, 1)
    base = ["--model", exported / "hf", "--train", file, "--dev", file, "--out", tmp_path / "out"]
    with pytest.raises(SystemExit, match=message):
        recipe.main([*map(str, base), *words.split()])
