"""Steps that are done once, some at a time: each a command, its log, and what was found in the log.

A command runs in a process that is forked from this one, which has torch and fairseq in it already: importing them costs
more than fine-tuning one of these models.
"""

import json
import logging
import os
import runpy
import signal
import sys
import time
import traceback
import warnings
from collections import deque
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from commands import ROOT, quote, write  # noqa: E402


class Step:
    """A command whose log is ``PATH.log`` and whose result is ``PATH.json``.

    Args:
        path: without a suffix; the name is what progress is told by.
        command: ``[module or script, argument, ...]``, paths and numbers as they come.
        read: from the text of the log to a dict of what is kept.
        restarts: a file from which the command goes on if it is there, so that what it takes is not the whole.
    """

    def __init__(self, path, command, read, restarts=None):
        self.path, self.read, self.restarts = path, read, restarts
        self.command = [str(part) for part in command]

    def is_done(self):
        return self.path.with_name(self.path.name + ".json").exists()

    def describe(self):
        state = "done" if self.is_done() else "to do"
        start = ["python"] if self.command[0].endswith(".py") else ["python", "-m"]
        return f"# {self.path.name} ({state})\n" + quote(start + self.command)

    def start(self):
        """Fork a process that runs the command; returns its id."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.whole = self.restarts is None or not self.restarts.exists()
        self.began = time.time()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _become(self.command, self.log, os.O_TRUNC if self.whole else os.O_APPEND)
        return pid

    @property
    def log(self):
        return self.path.with_name(self.path.name + ".log")

    def finish(self, status, usage):
        """Keep what was found; ends the study with one line where the command failed."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            sys.exit(f"{self.log}: can't read it: {error.strerror}")
        if status != 0:
            last = ([line for line in text.splitlines() if line.strip()] or ["it printed nothing"])[-1]
            sys.exit(f"{self.log}: the command failed, with status {status}: {last.strip()[:300]}")
        try:
            found = self.read(text)
        except (IndexError, KeyError, ValueError) as error:
            sys.exit(f"{self.log}: the log of a finished command has not what is looked for: {error!r}")
        spent = round(usage.ru_utime + usage.ru_stime, 2)
        result = {**found, "processor_seconds": spent, "whole": self.whole, "time": [self.began, time.time()]}
        write(self.path.with_name(self.path.name + ".json"), json.dumps(result) + "\n")
        return result


def preload():
    """Import what the commands need, once. With more threads a model this small is no faster, and on a busy machine, where
    threads wait for each other, much slower."""
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path.insert(0, str(ROOT))
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    import fairseq_cli.train  # noqa: F401
    import fairseq_cli.validate  # noqa: F401

    import fairseq_maskplugins  # noqa: F401

    for handler in logging.root.handlers[:]:  # each command sets up its own log
        logging.root.removeHandler(handler)
    logging.disable(logging.NOTSET)


def _become(command, log, mode):
    """Run a command as ``python -m`` would, output in the log, and end."""
    status = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | mode, 0o666)
        os.dup2(file, 1)
        os.dup2(file, 2)
        sys.argv = command
        if command[0].endswith(".py"):
            runpy.run_path(command[0], run_name="__main__")
        else:
            runpy.run_module(command[0], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def run_chains(chains, jobs):
    """Run the steps of each chain one after the other, ``jobs`` chains at a time; steps that are done are skipped.

    Where one fails or the call is interrupted, the others are ended too; what is finished stays.
    """
    todo = [deque(step for step in chain if not step.is_done()) for chain in chains]
    total, done = sum(map(len, chains)), sum(map(len, chains)) - sum(map(len, todo))
    waiting, running = deque(chain for chain in todo if chain), {}
    began = time.time()
    if waiting:
        print(f"{total - done} of {total} steps to do, {jobs} at a time", flush=True)
        preload()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                chain = waiting.popleft()
                step = chain.popleft()
                running[step.start()] = (step, chain)
            pid, status, usage = os.wait4(-1, 0)
            if pid not in running:
                continue
            step, chain = running.pop(pid)
            result = step.finish(os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status), usage)
            done += 1
            if chain:
                waiting.appendleft(chain)
            shown = ", ".join(f"{key} {value:g}" for key, value in result.items() if isinstance(value, float))
            print(f"{time.time() - began:6.0f} s [{done}/{total}] {step.path.name}: {shown}", flush=True)
    finally:
        for pid in running:
            os.kill(pid, signal.SIGTERM)
        for pid in running:
            os.waitpid(pid, 0)
