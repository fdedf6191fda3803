"""Tools on several data directories, as a training reads them, and on data that is not the checkpoint's."""

import argparse
import json

import harness
import numpy as np
import pytest

from fairseq_maskplugins.child_tuning import maskfile
from fairseq_maskplugins.cli import main
from fairseq_maskplugins.errors import UsageError


@pytest.fixture(scope="module")
def shards(corpus, tmp_path_factory):
    """Two directories joined by ``":"``, the second with another number of rows."""
    other = tmp_path_factory.mktemp("shards") / "other"
    harness.preprocess(corpus / "valid.sp", corpus / "valid.sp", other, "--srcdict", corpus / "bin" / "dict.txt")
    return f"{corpus / 'bin'}:{other}"


@pytest.fixture(scope="module")
def checkpoint(shards, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    harness.train(shards, folder, "--max-update", 1)
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def rows(shards):
    """Rows of training in each directory."""
    task, _ = harness.make_task(shards)
    found = []
    for epoch in (1, 2):
        task.load_dataset("train", epoch=epoch)
        found.append(len(task.dataset("train")))
    assert found[0] != found[1]
    return found


def test_show_masks_reads_the_epoch_s_directory(shards, rows, capsys):
    def measured(split, epoch):
        arguments = ["show-masks", shards, "--split", split, "--epoch", str(epoch), "--measure", "100000", "--json"]
        assert main([*arguments, "--tokens-per-sample", "32", "--rows", "0"]) == 0
        return json.loads(capsys.readouterr().out)["rows"]

    assert [measured("train", epoch) for epoch in (1, 2, 3)] == [*rows, rows[0]]
    assert measured("valid", 1) == measured("valid", 2)  # validation always reads the first


def test_variance_draws_from_all(shards, rows, checkpoint):
    arguments = ["variance", str(checkpoint), shards, "--masks", "2", "--groups", "2", "--cpu"]
    too_many = sum(rows) + (1 if sum(rows) % 2 else 2)
    with pytest.raises(UsageError, match=f"--rows must be at most the rows of train, {sum(rows)}, got {too_many}"):
        main([*arguments, "--rows", str(too_many)])
    assert main([*arguments, "--rows", "4", "--params", "lm_head.bias"]) == 0


def test_rows_are_drawn_without_repetition():
    from fairseq_maskplugins.variance.gradients import _choose_rows

    class Data:
        def __init__(self, sizes):
            self.sizes = np.array(sizes)

        def __len__(self):
            return len(self.sizes)

    one, two = Data([4, 90, 5, 6, 7]), Data([3, 3, 91])
    found = _choose_rows(argparse.Namespace(rows=6, seed=1, split="train"), [one, two], 50)
    assert sorted((d is two, i) for d, i in found) == [(False, 0), (False, 2), (False, 3), (False, 4), (True, 0), (True, 1)]
    assert found[:3] == _choose_rows(argparse.Namespace(rows=3, seed=1, split="train"), [one, two], 50)
    assert found != _choose_rows(argparse.Namespace(rows=6, seed=2, split="train"), [one, two], 50)
    with pytest.raises(UsageError, match="at most the rows of train that the model takes, 6, got 7"):
        _choose_rows(argparse.Namespace(rows=7, seed=1, split="train"), [one, two], 50)


def test_fisher_reads_all(shards, rows, checkpoint, tmp_path):
    options = [*harness.TINY, *harness.MLM, "--restore-file", checkpoint, "--cover", "lm_head.bias"]
    for data, expected in ((shards, sum(rows)), (shards.split(":")[1], rows[1])):
        assert main([str(part) for part in ("fisher", data, "--mask", tmp_path / "m", *options)]) == 0
        manifest, _ = maskfile.read(str(tmp_path / "m"), "mask")
        assert (manifest["examples"], manifest["data"]) == (expected, data)


def test_fill_mask_reads_the_dictionary_of_the_first(shards, corpus, checkpoint, capsys):
    bpe = ["--bpe", "sentencepiece", "--sentencepiece-model", str(corpus / "sp.model")]
    found = []
    for data in (shards, str(corpus / "bin")):
        assert main(["fill-mask", str(checkpoint), data, "the old <mask>", *bpe]) == 0
        found.append(capsys.readouterr().out)
    assert found[0] == found[1] and "<mask> 1: " in found[0]


def test_pmi_stats_takes_one(shards, corpus):
    with pytest.raises(UsageError, match="DATA must be one directory, got .*other: measure them one by one"):
        main(["pmi", "stats", str(corpus / "phrases.txt"), shards])


def test_a_directory_that_is_missing(corpus, tmp_path):
    log = harness.train(f"{corpus / 'bin'}:{tmp_path / 'nowhere'}", tmp_path / "run", check=False)
    last = log.text.splitlines()[-1]
    assert log.returncode == 1 and last.startswith(f"fairseq_maskplugins: the data directory '{tmp_path / 'nowhere'}' of")
    assert last.endswith("does not exist") and "Traceback" not in log.text


@pytest.mark.parametrize("command", ["variance", "fisher", "show-masks"])
def test_a_dictionary_that_is_not_the_checkpoint_s(command, corpus, checkpoint, tmp_path):
    (tmp_path / "dict.txt").write_text((corpus / "bin" / "dict.txt").read_text() + "zebra 1\n")
    source = corpus / "valid.sp"
    harness.preprocess(source, source, tmp_path / "bin", "--srcdict", tmp_path / "dict.txt", "--padding-factor", 1)
    data = str(tmp_path / "bin")
    arguments = {
        "variance": [checkpoint, data, "--rows", 4, "--masks", 2, "--groups", 2],
        "fisher": [data, "--mask", tmp_path / "m", "--restore-file", checkpoint, *harness.TINY, *harness.MLM],
        "show-masks": [data, "--checkpoint", checkpoint],
    }[command]
    with pytest.raises(UsageError) as error:
        main([command, *map(str, arguments)])
    assert error.value.message.startswith(f"{data}/dict.txt: has ")
    assert f"entries with <mask>, the model in {checkpoint} has " in error.value.message
    assert error.value.message.endswith(" rows: it is not the model's")


def test_fill_mask_names_a_fine_tuned_checkpoint(corpus, tmp_path):
    base = harness.TINY + harness.LABELLED
    harness.train(corpus / "bin", tmp_path / "run", "--max-update", 1, base=base)
    path = tmp_path / "run" / "checkpoint_last.pt"
    for data in (corpus / "bin", corpus / "bin" / "input0"):
        with pytest.raises(UsageError, match="must be a checkpoint of a masked language model, .* sentence_prediction$"):
            main(["fill-mask", str(path), str(data), "a <mask>"])
