"""``examples/ablations``: every run of the sweep is a command that fairseq takes, and runs end in a table."""

import importlib.util
import json
import os
import shlex
import sys
from pathlib import Path

import harness
import pytest
from fairseq import options as fairseq_options

import fairseq_maskplugins  # noqa: F401  (registers)

RUN = harness.ROOT / "examples" / "ablations" / "run.py"
TOKENIZER = ["--bpe-options", "--bpe sentencepiece --sentencepiece-model sp.model", "--pmi-vocab", "my phrases.txt"]
TOY = (
    "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 --batch-size 8 "
    "--update-freq 1 --num-workers 0 --log-interval 1 --max-update 2 --no-save"
).split()


@pytest.fixture(scope="module")
def recipe():
    spec = importlib.util.spec_from_file_location("ablations", RUN)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments, **kwargs):
    return harness.run([sys.executable, RUN, *arguments], **kwargs)


def parse(words):
    parser = fairseq_options.get_training_parser()
    return fairseq_options.parse_args_and_arch(parser, input_args=[str(word) for word in words])


def test_every_run_is_a_command_that_fairseq_takes(tmp_path):
    """What the paper varies, and nothing else, differs from the recipe."""
    text = run("data-bin", "out", "--dry-run", "--gpus", 2, *TOKENIZER, cwd=tmp_path, check=True).stdout
    lines = text.splitlines()
    assert len(lines) == 2 * 23
    found = {}
    for title, command in zip(lines[::2], lines[1::2]):
        words = shlex.split(command)
        assert words[0] == "fairseq-train"
        found[title[2:]] = parse(words[1:])
    base = vars(found["uniform-40"])
    varied = "corruption_rate prediction_rate masker random_token_prob leave_unmasked_prob save_dir bpe sentencepiece_model "
    varied += "pmi_vocab batch_size batch_size_valid update_freq sentencepiece_enable_sampling sentencepiece_alpha"
    for name, args in found.items():
        assert {key for key, value in vars(args).items() if base.get(key) != value} <= set(varied.split()), name
        assert Path(args.save_dir).name == name and 2 * args.batch_size * args.update_freq[0] == 4096
        copies = -(-round(100 * args.prediction_rate) // round(100 * args.corruption_rate))
        assert args.batch_size * copies == 64  # as much stands on a GPU
        masker, _, rate = name.partition("-")
        if masker in ("uniform", "span", "pmi"):
            assert args.masker == masker and args.corruption_rate == args.prediction_rate == int(rate) / 100
        if name.startswith("corrupt-"):
            _, corruption, _, prediction = name.split("-")
            assert (args.corruption_rate, args.prediction_rate) == (int(corruption) / 100, int(prediction) / 100)
    assert found["pmi-15"].pmi_vocab == str(tmp_path / "my phrases.txt") and found["span-15"].bpe == "sentencepiece"
    # Table 4 of the paper: share of tokens that is [MASK], random, and the same
    for name, expected in {"same-5": (0.4, 0, 0.05), "random-5": (0.35, 0.05, 0), "80-10-10": (0.32, 0.04, 0.04)}.items():
        args = found[name]
        shares = [args.corruption_rate * p for p in (args.random_token_prob, args.leave_unmasked_prob)]
        assert (args.corruption_rate - sum(shares), *shares) == pytest.approx(expected, abs=1e-4), name


def test_list_and_choice(recipe, capsys):
    recipe.main(["--list", "--only", "replacement"])
    text = capsys.readouterr().out
    assert "replacement: uniform-40 same-5 random-5 80-10-10\n" in text
    assert text.split("\n\n")[1].splitlines()[0] == "uniform-40: --corruption-rate 0.4 --prediction-rate 0.4"
    runs, groups = recipe.read_sweep()
    assert recipe.choose([], runs, groups) == list(runs)
    assert set(sum(groups.values(), [])) == set(runs)  # none stands outside
    assert recipe.choose(["same-5", "corruption-prediction"], runs, groups)[:2] == ["uniform-20", "uniform-40"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--only", "uniform-41"], "--only must name runs or groups of the sweep (see --list), got uniform-41"),
        (["--only", "span-15"], "run span-15 needs --bpe-options"),
        (["--only", "pmi-15", *TOKENIZER[:2]], "run pmi-15 needs --pmi-vocab"),
        (["--only", "uniform-15", "--gpus", "3"], "run.sh: GPUs x rows must divide the batch"),
        (["--sweep", "missing.yaml"], "missing.yaml: can't read the sweep"),
    ],
)
def test_bad_input_gets_one_line(recipe, arguments, message):
    with pytest.raises(SystemExit) as error:
        recipe.main(["data-bin", "out", "--dry-run", *arguments])
    assert message in str(error.value) and "\n" not in str(error.value)


def test_from_data_to_a_table(data_bin, tmp_path):
    """One run trains, another one is finished; the same command again runs nothing, another one is refused."""
    env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = tmp_path / "uniform-20"
    done.mkdir()
    (done / "found.json").write_text(json.dumps(dict(loss=5.5, updates=9, corruption=0.2, prediction=0.2)))
    command = [data_bin, tmp_path, "--cpu", "--only", "uniform-20", "corrupt-40-predict-20", "--", *TOY]
    run(*command, env=env, check=True)
    rows = (tmp_path / "table.md").read_text().splitlines()[2:4]
    assert rows[0] == "| uniform-20 | 0.200 | 0.200 | 9 | 5.500 |"
    name, corrupted, predicted, updates, loss = (cell.strip() for cell in rows[1].strip("|").split("|"))
    assert (name, updates) == ("corrupt-40-predict-20", "2") and 0 < float(loss) < 10
    assert float(corrupted) == pytest.approx(0.4, abs=0.02) and float(predicted) == pytest.approx(0.2, abs=0.02)
    log = (tmp_path / name / "train.log").read_text()
    assert run(*command, env=env, check=True).stdout.count("| uniform-20 |") == 1
    assert (tmp_path / name / "train.log").read_text() == log
    changed = run(*command, "--seed", 2, env=env)
    assert changed.returncode == 1 and "corrupt-40-predict-20: holds a run of another command" in changed.stdout
