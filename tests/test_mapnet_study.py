"""The study of ``examples/mapnet`` runs at toy size, from data to a table and a plot."""

import json
import sys

import harness
import pytest

SMALL = (
    "--arch roberta_base --encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 "
    "--max-positions 32 --tokens-per-sample 32"
)


@pytest.mark.slow
def test_from_data_to_a_table(corpus, tmp_path):
    (tmp_path / "uniform-1").mkdir()
    curve = [[2, 0.1, 9.0], [4, 0.2, 8.0]]
    (tmp_path / "uniform-1" / "found.json").write_text(json.dumps({"updates": 4, "curve": curve, "last": {}}))
    command = [sys.executable, harness.ROOT / "examples" / "mapnet" / "run.py", tmp_path, "--data", corpus / "bin"]
    command += ["--methods", "uniform", "mapnet", "--seeds", 1, "--warmup", 1, "--every", 2, "--rows", 16]
    harness.run([*command, "--updates", 4, "--model-options", SMALL], check=True)
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert lines[4].startswith("| uniform | 8.000 (8.000 to 8.000) | 4 |")
    assert lines[5].startswith("| mapnet |") and "| 4 | " in lines[-1] and "±" in lines[-1]
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"
    done = harness.run([*command, "--updates", 5, "--model-options", SMALL])
    assert done.returncode == 1 and "holds a run with --updates 4, got 5" in done.stdout
