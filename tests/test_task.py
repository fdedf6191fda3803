"""The task: bad input ends in one line before training, schedules follow the update number, inference needs no data."""

import shutil
import subprocess
import sys

import harness
import pytest
import torch

from fairseq_maskplugins.errors import UsageError

SP = ["--bpe", "sentencepiece", "--sentencepiece-model"]


def fails_with(message, data, *options, load=("train",)):
    with pytest.raises(UsageError, match=message) as error:
        task, cfg = harness.make_task(data, *options)
        for split in load:
            task.load_dataset(split)
        task.build_model(cfg.model)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "options, message",
    [
        ("--corruption-rate 0", r"--corruption-rate must lie in \(0, 1\], got 0"),
        ("--prediction-rate 1.5", r"--prediction-rate must lie in \(0, 1\], got 1.5"),
        ("--corruption-rate 1e-9", "makes 4e\\+08 copies of each sequence, more than --tokens-per-sample, 32"),
        ("--mask-prob-final 0.2", "--max-update, which must be above 0, got 0"),
        ("--mask-prob-final 2 --max-update 9", r"--mask-prob-final must lie in \(0, 1\], got 2"),
        ("--random-token-prob 1.1", r"--random-token-prob must lie in \[0, 1\], got 1.1"),
        ("--random-token-prob 0.6 --leave-unmasked-prob 0.6", "must add up to at most 1, got 0.6 \\+ 0.6"),
        ("--masker wholeword", "--masker must be one of .*uniform, whole_word, got 'wholeword'"),
        ("--mask-budget half", "--mask-budget must be one of exact, whole, got 'half'"),
        ("--masker whole_word", "--masker whole_word needs to know where words begin: give the --bpe"),
        ("--mask-whole-words", "--masker whole_word needs to know where words begin"),
        (
            "--masker whole_word --bpe sentencepiece --sentencepiece-model /no/such",
            "--bpe sentencepiece: can't load the tokenizer: OSError",
        ),
        ("--masker whole_word --bpe subword_nmt", "--bpe subword_nmt needs --bpe-codes"),
        ("--tokens-per-sample 65", "--tokens-per-sample must be at most the model's --max-positions, 64, got 65"),
        ("--tokens-per-sample 1", "--tokens-per-sample must be at least 2"),
        ("--mask-multiple-length 0", "--mask-multiple-length must be at least 1, got 0"),
        ("--mask-stdev -1", "--mask-stdev must be 0 or more, got -1"),
    ],
)
def test_bad_options(options, message, data_bin):
    fails_with(message, data_bin, *options.split())


def test_tokenizer_without_words(data_bin):
    from fairseq.data import Dictionary

    from fairseq_maskplugins.decoupled_mlm.dictionary import build_vocabulary

    dictionary = Dictionary.load(str(data_bin / "dict.txt"))
    dictionary.add_symbol("<mask>")
    with pytest.raises(UsageError, match="--bpe characters does not say where words begin"):
        build_vocabulary(dictionary, False, "characters").find_word_begins()


def test_bad_data(data_bin, tmp_path):
    fails_with("/no/such/dict.txt: no such file", "/no/such")
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "dict.txt").write_text("")
    fails_with(f"{empty}/dict.txt: holds no words", empty)
    (empty / "dict.txt").write_text("word twelve\n")
    fails_with("dict.txt: can't read the dictionary", empty)
    (empty / "dict.txt").write_text("a 1\na 2\n")
    fails_with("dict.txt: can't read the dictionary: .*Duplicate", empty)
    (empty / "dict.txt").write_bytes(b"\xff\xfe 1\n")
    fails_with("dict.txt: can't read the dictionary: .*encoding", empty)

    data = tmp_path / "bin"
    shutil.copytree(data_bin, data)
    fails_with("nosuch.bin and .*nosuch.idx: no such data set", data, load=["nosuch"])
    whole = (data / "train.bin").read_bytes()
    (data / "train.bin").write_bytes(whole[: len(whole) // 2])
    fails_with("train.bin is truncated", data)
    (data / "train.idx").write_bytes((data / "train.idx").read_bytes()[:30])
    fails_with("train: can't read the data", data)
    (data / "train.idx").write_bytes(b"not an index at all")
    fails_with("train: can't read the data|no such data set", data)


def test_data_of_another_dictionary(data_bin, tmp_path):
    data = tmp_path / "bin"
    shutil.copytree(data_bin, data)
    lines = (data / "dict.txt").read_text().splitlines()
    (data / "dict.txt").write_text("\n".join(lines[:10]) + "\n")
    task, cfg = harness.make_task(data)
    with pytest.raises(UsageError, match="train: sequence .* holds token id .*, the dictionary has only 15 entries"):
        harness.batches(task, cfg)


def test_mask_in_the_text(corpus, tmp_path):
    """Raw text with the word <mask> is refused when the sequence is read."""
    lines = (corpus / "train.sp").read_text().splitlines()
    lines[41] += " <mask> <mask>"
    (tmp_path / "t.sp").write_text("\n".join(lines) + "\n")
    for name, options in (("bin", []), ("lazy", ["--dataset-impl", "lazy"])):
        harness.preprocess(tmp_path / "t.sp", corpus / "valid.sp", tmp_path / name, *options)
        task, cfg = harness.make_task(tmp_path / name)
        with pytest.raises(UsageError, match="train: sequence .* holds <mask> itself; remove the word"):
            harness.batches(task, cfg)


def test_specials_in_the_text_are_never_masked(corpus, tmp_path):
    lines = (corpus / "train.sp").read_text().splitlines()
    (tmp_path / "t.sp").write_text("\n".join("<s> " + line + " <unk> </s> <pad>" for line in lines) + "\n")
    harness.preprocess(tmp_path / "t.sp", corpus / "valid.sp", tmp_path / "bin", "--srcdict", corpus / "bin" / "dict.txt")
    task, cfg = harness.make_task(tmp_path / "bin", "--mask-prob", "1.0", "--batch-size", "4")
    for batch in harness.batches(task, cfg)[:20]:
        masked = task.mask_batch(batch, task.schedule.start)
        special = masked["tokens"] < task.dictionary.nspecial
        assert special.any() and torch.equal(masked["net_input"]["src_tokens"][special], masked["tokens"][special])
        assert (masked["target"][special] == task.dictionary.pad()).all()


def test_the_command_prints_one_line(data_bin, tmp_path):
    """What a user sees: the line, alone at the end, with exit status 1 and no traceback."""
    for options in (["--prediction-rate", "7"], ["--masker", "whole_word"]):
        log = harness.train(data_bin, tmp_path, *options, check=False)
        assert log.returncode == 1
        assert "Traceback" not in log.text
        assert log.text.strip().splitlines()[-1].startswith("fairseq_maskplugins: --")


def test_schedule_reaches_the_step(data_bin, tmp_path):
    """The logged rate is the schedule's at the number of updates done, for any workers and update frequency."""
    options = "--mask-prob 0.9 --mask-prob-final 0.1 --max-update 5 --tokens-per-sample 60".split()
    for extra in ([], ["--num-workers", "2", "--update-freq", "2"]):
        log = harness.train(data_bin, tmp_path / "run", *options, *extra, "--no-save")
        for step in log.train:
            done = step["num_updates"] - 1
            assert step["corruption_rate"] == pytest.approx(0.9 - 0.8 * done / 5, abs=0.02)


def test_validation_stays_at_the_rates_of_update_0(data_bin):
    """Whatever the schedule has come to: validation losses compare over a run."""
    task, cfg = harness.make_task(data_bin, "--mask-prob", 0.6, "--mask-prob-final", 0.2, "--max-update", 10)
    seen = []

    def criterion(model, sample):
        seen.append((sample["corruption_rate"], sample["prediction_rate"]))
        return torch.zeros(()), 1, {}

    batch = next(iter(harness.batches(task, cfg, "valid")))
    task.valid_step(batch, torch.nn.Linear(1, 1), criterion)
    assert seen == [(0.6, 0.6)]


def test_whole_words_by_either_flag(corpus):
    for flag in (["--masker", "whole_word"], ["--mask-whole-words"]):
        task, _ = harness.make_task(corpus / "bin", *flag, *SP, corpus / "sp.model")
        assert type(task.planner.masker).__name__ == "WholeWordMasker" and task.planner.budget == "whole"


def test_configuration_survives_a_spawned_process(corpus):
    """fairseq pickles its configuration for each of a machine's GPUs, which import the package by themselves."""
    code = """
import pickle, sys
sys.path[:0] = [{root!r}, {tests!r}]
import harness
cfg = harness.parse({data!r}, "--masker", "whole_word")
print("READY" + pickle.dumps(cfg).hex())
"""
    code = code.format(root=str(harness.ROOT), tests=str(harness.ROOT / "tests"), data=str(corpus / "bin"))
    pickled = harness.run([sys.executable, "-c", code], check=True).stdout.split("READY")[1].split()[0]
    child = f"""
import pickle, sys
sys.path.insert(0, {str(harness.ROOT)!r})
cfg = pickle.loads(bytes.fromhex(sys.stdin.read()))
from fairseq import utils
utils.import_user_module(cfg.common)
assert cfg.task.masker == "whole_word" and cfg.task._name == "decoupled_mlm"
"""
    done = subprocess.run([sys.executable, "-c", child], input=pickled, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_data2vec_options_are_refused(data_bin):
    task, cfg = harness.make_task(data_bin)
    if "d2v2_multi" in cfg.task:
        fails_with("--d2v2-multi is for data2vec", data_bin, "--d2v2-multi")
        fails_with("--skip-masking is for data2vec", data_bin, "--skip-masking")


def test_runs_of_tokens_and_words(corpus):
    """``--mask-multiple-length`` keeps the rate, which stock fairseq does not, and ``--mask-stdev`` varies the runs."""
    for options in (["--mask-stdev", "0"], ["--mask-stdev", "1.5"], ["--mask-whole-words", *SP, str(corpus / "sp.model")]):
        task, cfg = harness.make_task(corpus / "bin", "--mask-multiple-length", "4", "--mask-prob", "0.3", *options)
        masked = maskable = 0
        for batch in harness.batches(task, cfg):
            sample = task.mask_batch(batch, task.schedule.start)
            masked += int((sample["target"] != 1).sum())
            maskable += int(sample["maskable"].sum())
        assert abs(masked / maskable - 0.3) < 0.03
