"""Running something hostile: in a forked process with little memory and little time, and told what became of it."""

import os
import pickle
import resource
import select
import signal
import sys
import traceback
from typing import NamedTuple

from fairseq_maskplugins.errors import UsageError

MEGABYTE = 1 << 20


class Outcome(NamedTuple):
    """What became of it.

    Attributes:
        kind: "done", "refused" (by an error of ours), "crashed" (by another exception), "killed" (by a signal) or
            "endless".
        text: of the exception; what was printed, for "done".
        megabytes: how much the process grew.
    """

    kind: str
    text: str
    megabytes: float


def guarded(function, *args, megabytes=700, seconds=300):
    """Call a function in a fork of this process, which may grow by so many megabytes of address space."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _run(function, args, writer, megabytes)
    os.close(writer)
    said = b""
    try:
        while True:
            ready, _, _ = select.select([reader], [], [], seconds)
            if not ready:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return Outcome("endless", f"not done after {seconds} s", 0.0)
            part = os.read(reader, 1 << 16)
            if not part:
                break
            said += part
    finally:
        os.close(reader)
    _, status, usage = os.wait4(pid, 0)
    if os.WIFSIGNALED(status):
        return Outcome("killed", f"by signal {os.WTERMSIG(status)}", 0.0)
    return Outcome(*pickle.loads(said))


def _resident():
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["VmSize"].split()[0]) * 1024, int(fields["VmHWM"].split()[0]) / 1024


def _run(function, args, writer, megabytes):
    outcome, limits = ("crashed", "", 0.0), resource.getrlimit(resource.RLIMIT_AS)
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        size, before = _resident()
        resource.setrlimit(resource.RLIMIT_AS, (size + megabytes * MEGABYTE, limits[1]))
        try:
            outcome = ("done", str(function(*args)), 0.0)
        except UsageError as error:
            outcome = ("refused", str(error), 0.0)
        except SystemExit as error:
            outcome = ("crashed", f"SystemExit: {error}", 0.0)
        except BaseException:
            outcome = ("crashed", traceback.format_exc(), 0.0)
        outcome = (*outcome[:2], _resident()[1] - before)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        with os.fdopen(writer, "wb") as file:
            file.write(pickle.dumps(outcome))
        sys.stderr.flush()
        os._exit(0)


def command(*arguments):
    """``maskplugins`` in this process."""
    from fairseq_maskplugins.cli import main

    status = main([str(argument) for argument in arguments])
    if status:
        raise RuntimeError(f"exit status {status}")
    return ""


def check_line(outcome, *parts):
    """It was refused, in one line that a terminal shows as it is, and that names these things."""
    assert outcome.kind == "refused", outcome
    assert outcome.text.isprintable() and len(outcome.text) < 2100, outcome
    for part in parts:
        assert str(part) in outcome.text, outcome
