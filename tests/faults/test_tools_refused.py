"""``maskplugins`` commands whose folder or files are refused to them, vanish, or are another process's as well."""

import errno
import functools
import os
import shutil
import subprocess
import warnings
import zlib

import fault_commands as commands
import fault_folders as folders
import fault_prepare as prepare
import harness
import pytest
from fault_case import EACH, FOLDERS, assert_one_line
from fault_choice import SEED, choose
from forked import Forked


@pytest.mark.parametrize("name", EACH)
def test_read_only_folder(name, cases):
    case = cases(name)
    case.out.chmod(0o555)
    try:
        done = run_forked(case, prepare.obey_permissions)
    finally:
        case.out.chmod(0o755)
    assert done.returncode == 1
    assert_one_line(done.stdout, str(case.out))
    assert folders.read(case.out) == case.old


def run_forked(case, prepared):
    process = Forked(case.command, cwd=harness.ROOT, prepare=prepared)
    process.wait(300)
    return subprocess.CompletedProcess([], process.returncode, process.read())


@pytest.mark.uncounted
@pytest.mark.parametrize("name", EACH)
def test_files_that_can_not_grow(name, cases):
    """``RLIMIT_FSIZE``: whatever library writes, through whatever call, is told in the middle of a file."""
    case = cases(name)
    largest = max(len(content) for content in case.new.values() if content is not None)
    done = run_forked(case, functools.partial(prepare.limit_files, largest // 2))
    assert done.returncode == 1
    assert_one_line(done.stdout, str(case.out))
    case.check(litter=False)
    assert folders.read(case.out) == case.old or name == "fisher"  # whose mask is smaller than its values


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 64 KiB in memory. Mounting one takes root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = (
        shutil.which("mount")
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True
        ).returncode
    )
    if not mounted:
        warnings.warn(
            "NO DISK COULD BE MOUNTED (not root): full disks were tested by refused writes alone", stacklevel=1
        )
        pytest.skip("no disk could be mounted (not root); test_full_disk and test_files_that_can_not_grow stand for it")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("name", ["pmi-build", "correct-embeddings", "export-hf"])
def test_a_disk_that_is_really_full(name, inputs, small_disk):
    tool, out = commands.TOOLS[name], small_disk / "out"
    out.mkdir()
    for result in tool.results if name != "export-hf" else ():
        (out / result).write_text("what was there before")
    old = folders.read(out)
    done = harness.run(tool.command(inputs, out), cwd=harness.ROOT)
    assert done.returncode == 1
    assert_one_line(done.stdout, str(out))
    assert "No space left" in done.stdout or "disk" in done.stdout
    assert folders.read(out) == old


@pytest.mark.parametrize("name", EACH)
def test_inputs_that_vanish_or_are_refused(name, cases):
    """Each file that is read goes away (or may not be read) between the look at the folder and its opening.

    Either the command can do without the file, or it ends with one line that names it."""
    case = cases(name)
    root = os.path.commonpath([case.inputs.folder, case.inputs.corpus])
    out = os.path.realpath(case.out)
    seen = case.run(root=root, reads=True).events
    read = sorted({event.path for event in seen if not event.writes and not event.path.startswith(out)})
    read = [path for path in read if os.path.isfile(path)]
    assert read
    for index in choose(f"{name} inputs", range(len(read)), 2):
        path = read[index]
        error = (errno.ENOENT, errno.EACCES, errno.EIO)[zlib.crc32(f"{SEED}{name}{index}".encode()) % 3]
        case.reset()
        strike = lambda event: error if event.path == path and not event.writes else None  # noqa: B023, E731
        done = case.run(strike, root=root, reads=True)
        print(name, os.path.basename(path), errno.errorcode[error], done.returncode, done.text.strip().split("\n")[-1])
        if done.returncode == 0:
            case.check(litter=False)
        else:
            assert done.returncode == 1
            assert_one_line(done.text, os.path.splitext(os.path.basename(path))[0])
            assert folders.read(case.out) == case.old
    assert case.digest() == case.given


@pytest.mark.parametrize("name", EACH)
def test_another_of_the_same_in_between(name, cases):
    """At a moment of one command a second one runs from beginning to end, with the same output."""
    case = cases(name)
    inner = []
    for moment in choose(f"{name} two", range(1, len(case.events) + 1), 1):

        def strike(event, moment=moment):
            if event.number == moment:
                inner.append(harness.run(case.command, cwd=harness.ROOT))

        case.reset()
        done = case.run(strike)
        assert inner.pop().returncode == 0
        if done.returncode != 0:  # a folder that is there is not replaced
            assert name in FOLDERS and done.returncode == 1
            assert_one_line(done.text, str(case.out))
        assert folders.read(case.out) == case.new
