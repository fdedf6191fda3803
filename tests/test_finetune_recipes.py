"""The fine-tuning recipes run from text in GLUE layout to a table and a plot."""

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
