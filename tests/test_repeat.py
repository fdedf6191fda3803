"""``tests/repeat.py`` tells which tests fail now and then."""

import subprocess
import sys
from pathlib import Path

import repeat

# fails in the second of its runs
UNSTEADY = """
import pathlib, pytest
MARK = pathlib.Path(__file__).with_name("mark")
def test_steady(): pass
@pytest.mark.skip
def test_skipped(): pass
def test_unsteady():
    if MARK.exists():
        raise AssertionError
    MARK.touch()
"""


def test_an_unsteady_test_is_named(tmp_path):
    (tmp_path / "test_some.py").write_text(UNSTEADY)
    command = [sys.executable, str(Path(repeat.__file__)), "--times", "2", "--", "-p", "no:cacheprovider", tmp_path]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 1
    assert "failed 1, passed 1: " in done.stdout and "run 1: " in done.stdout and "run 2: " in done.stdout
    named = [line for line in done.stdout.splitlines() if line.startswith("    ")]
    assert all("test_unsteady" in line for line in named) and len(named) == 2


def test_counts():
    steady, sometimes = ("passed", 1.0), ("failed", 3.0)
    runs = [{"a": steady, "b": steady, "c": ("skipped", 0.0)}, {"a": steady, "b": sometimes, "c": ("skipped", 0.0)}]
    assert repeat.unsteady(runs) == {"b": {"passed": 1, "failed": 1}}
    assert repeat.unsteady([*runs, {"a": steady, "b": steady}])["c"] == {"skipped": 2, "missing": 1}
    assert repeat.slowest(runs, 2) == [(2.0, 3.0, "b"), (1.0, 1.0, "a")]
