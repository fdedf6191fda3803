"""``scripts/quickstart.py`` is killed and started again; and the environment that its shell script builds."""

import os
import re
import subprocess
import sys

import harness
import pytest

# files that hold the time, or are written again in another way
NEVER_THE_SAME = ("train.log", "checkpoints", "preprocess.log")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "own.txt"
    path.write_text("".join(f"{line}\n" for line in harness.make_lines(120)))
    return path


def command(text, out, updates=6):
    options = [out, "--text", text, "--updates", updates, "--vocab-size", 90]
    return [sys.executable, "-m", "quickstart", *map(str, options)]


SETTINGS = {"env": {"PYTHONPATH": os.pathsep.join(map(str, (harness.ROOT / "scripts", harness.ROOT)))}}


def results(out):
    """Everything but logs: bytes, and the weights of the last checkpoint."""
    files = {}
    for path in out.rglob("*"):
        name = str(path.relative_to(out))
        if path.is_file() and not any(part in NEVER_THE_SAME for part in path.relative_to(out).parts):
            files[name] = path.read_bytes()
    return files


def said(text):
    """What was measured, without the speed."""
    return re.findall(r"(?:measured|validation) at update .*|^  <mask> .*", text, re.MULTILINE)


@pytest.mark.slow
def test_killed(text, tmp_path):
    """Started again it ends as an undisturbed run: files, weights and printed figures."""
    whole, out = tmp_path / "whole", tmp_path / "out"
    printed = said(harness.run(command(text, whole), check=True, **SETTINGS).stdout)
    assert len(printed) >= 5
    for name in ("train.txt", "data-bin", "train.log", "checkpoints/checkpoint_last.pt"):
        harness.kill_when(command(text, out), (out / name).exists, **SETTINGS)
    done = harness.run(command(text, out), check=True, **SETTINGS)
    assert results(out) == results(whole)
    last = "checkpoints/checkpoint_last.pt"
    harness.assert_same_weights(whole / last, out / last)
    assert said(done.stdout) == printed


def test_settings_of_another_run_are_refused(text, tmp_path):
    (tmp_path / "settings.json").write_text('{"text": null, "updates": 3000, "vocab_size": 4000}\n')
    done = harness.run(command(text, tmp_path), **SETTINGS)
    assert done.returncode == 1
    assert done.stdout.strip() == (
        f"quickstart: {tmp_path}: was begun with no --text, --updates 3000, --vocab-size 4000; give the same, or another folder"
    )


FAKE_PYTHON = """#!/bin/sh
echo "$@" >>{log}
case "$*" in
    -c*) echo 310 ;;
    --version) echo Python 3.10 ;;
    "-m venv --clear "*) rm -rf "$4"; mkdir -p "$4/bin"; cp {here} "$4/bin/python"; touch "$4/pip" ;;
    "-m pip --version") [ -e "$(dirname "$0")/../pip" ] ;;
    "-m pip "*) [ -e "$(dirname "$0")/../pip" ] || {{ echo "No module named pip" >&2; exit 1; }} ;;
esac
"""


def test_an_environment_that_was_interrupted_is_made_anew(tmp_path):
    """``python -m venv`` puts the Python there first, and pip last."""
    fake, log, env = tmp_path / "python", tmp_path / "log", tmp_path / "env"
    fake.write_text(FAKE_PYTHON.format(log=log, here=fake))
    fake.chmod(0o755)
    (env / "bin").mkdir(parents=True)
    (env / "bin" / "python").write_bytes(fake.read_bytes())
    (env / "bin" / "python").chmod(0o755)
    script = f"source {harness.ROOT}/scripts/lib.sh; make_env {env} {fake} test"
    for _ in range(2):
        done = subprocess.run(["bash", "-c", script, f"{harness.ROOT}/scripts/x.sh"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert done.stdout == f"environment {env} is ready\n"
    assert log.read_text().count("venv --clear") == 1
