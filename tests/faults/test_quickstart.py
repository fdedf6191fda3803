"""``scripts/quickstart.py`` killed, out of disk, or twice in one folder; and the environment that it builds."""

import errno
import os
import random
import re
import signal
import subprocess
import sys
import time

import fault_moments as moments
import harness
import pytest
from fault_choice import SEED, choose
from forked import Forked

# files of fairseq's that hold the time, or come to the same in another way
NEVER_THE_SAME = ("train.log", ".lock", "checkpoints", "preprocess.log")


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


class Undisturbed:
    def __init__(self, text, out):
        done = moments.watch(command(text, out), out, **SETTINGS)
        assert done.returncode == 0, done.text
        self.events, self.files, self.said = done.events, results(out), said(done.text)
        self.last = out / "checkpoints" / "checkpoint_last.pt"
        assert len(self.said) >= 5

    def check(self, text, out):
        """Run again, it ends as the undisturbed one, in files, weights and words."""
        done = harness.run(command(text, out), **SETTINGS)
        assert done.returncode == 0, done.stdout
        assert results(out) == self.files
        harness.assert_same_weights(self.last, out / "checkpoints" / "checkpoint_last.pt")
        assert said(done.stdout) == self.said


@pytest.fixture(scope="module")
def whole(text, tmp_path_factory):
    return Undisturbed(text, tmp_path_factory.mktemp("whole") / "out")


@pytest.mark.slow
def test_killed(text, whole, tmp_path):
    """Again and again at moments of its own and its commands', and at last left alone."""
    out = tmp_path / "out"
    for moment in choose("quickstart", range(1, len(whole.events) + 1), 4):
        done = moments.watch(command(text, out), out, moments.kill_at(moment), **SETTINGS)
        assert done.returncode in (-signal.SIGKILL, 0), done.text  # what is done is not done again: fewer calls
    whole.check(text, out)


@pytest.mark.slow
def test_full_disk(text, whole, tmp_path):
    spacious = [event.number for event in whole.events if event.needs_space]
    for moment in choose("quickstart full", spacious, 3, always=spacious[:1]):
        out = tmp_path / str(moment)
        done = moments.watch(command(text, out), out, moments.full_from(moment), **SETTINGS)
        assert done.returncode == 1, done.text
        last = done.text.strip().splitlines()[-1]
        assert last.startswith("quickstart: ") and "Traceback" not in done.text, done.text
        whole.check(text, out)


@pytest.mark.slow
def test_only_the_script_is_killed(text, whole, tmp_path):
    """Its training lives on; started again, the script waits for it, and neither disturbs the other."""
    out = tmp_path / "out"
    rng = random.Random(f"{SEED} quickstart")
    process = Forked(command(text, out), **SETTINGS)
    try:
        while not (out / "train.log").exists() or b"Start iterating" not in (out / "train.log").read_bytes():
            assert process.poll() is None
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.5))
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)
        whole.check(text, out)
    finally:
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.read()


@pytest.mark.slow
def test_two_at_once(text, whole, tmp_path):
    out = tmp_path / "out"
    both = [Forked(command(text, out), **SETTINGS) for _ in range(2)]
    texts = [process.read() for process in both]
    assert [process.returncode for process in both] == [0, 0], texts
    assert [said(text) for text in texts] == [whole.said] * 2
    assert sum("waiting for its end" in text for text in texts) == 1
    whole.check(text, out)


def test_settings_of_another_run_are_refused(text, tmp_path):
    (tmp_path / "settings.json").write_text('{"text": null, "updates": 3000, "vocab_size": 4000}\n')
    done = harness.run(command(text, tmp_path), **SETTINGS)
    assert done.returncode == 1
    assert done.stdout.strip() == (
        f"quickstart: {tmp_path}: was begun with no --text, --updates 3000, --vocab-size 4000; give the same, or another "
        "folder"
    )


@pytest.mark.uncounted
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS])
def test_a_refused_write_is_one_line(error, text, tmp_path):
    strike = lambda event: error if event.path.endswith("train.txt.tmp") else None  # noqa: E731
    done = moments.watch(command(text, tmp_path), tmp_path, strike, **SETTINGS)
    assert done.returncode == 1
    assert done.text.strip().splitlines()[-1].startswith("quickstart: ") and "Traceback" not in done.text
    assert os.strerror(error) in done.text and not (tmp_path / "train.txt").exists()


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
