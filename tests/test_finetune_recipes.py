"""The fine-tuning recipes run from text in GLUE layout to a table and a plot."""

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
    command = [sys.executable, FOLDER / "prepare.py", "glue", folder / "out", "--source", folder, "--vocabulary", "90"]
    harness.run(command, check=True)
    return folder / "out"


def test_from_text_to_a_table(prepared, tmp_path):
    small = "--arch roberta_base --encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 "
    options = ["--arch-options", small + "--encoder-attention-heads 2 --max-positions 128", "--seeds", "1"]
    options += ["--methods", "D", "update", "--updates", "4", "--pretrain-updates", "2", "--fisher-examples", "10"]
    command = [sys.executable, FOLDER / "run.py", prepared, tmp_path, *options]
    harness.run(command, check=True)
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["D", "update"]
    assert all(0 < float(line.split("|")[3]) <= 100 for line in lines[2:])
    assert (tmp_path / "scores.png").read_bytes()[:4] == b"\x89PNG"
    # finished runs are not run again
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")}
    harness.run(command, check=True)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")}
