"""Commands in processes of their own that need not import torch and fairseq again: forked from a server that has.

Starting ``python -m fairseq_cli.train`` costs three times what the tiny trainings of these tests do. A forked process
runs the module as ``python -m`` would, with arguments, environment, folder, output and exit status of its own; our own
package is not in the server, so that ``--user-dir`` imports it as always. Tests of importing and of recipes start real
commands.
"""

import atexit
import gc
import logging
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from functools import lru_cache

MODULES = (
    "fairseq_cli.train",
    "fairseq_cli.preprocess",
    "fairseq_cli.validate",
    "fairseq_cli.hydra_train",
    "fairseq_maskplugins.cli",
    "block",  # a block of Python in a page, written to a folder of its own
    "quickstart",
)
# pytest: it is what __main__ is in the parent, and children import that. torch._dynamo: newer optimizers import it, and sympy
# with it, at their first step; what is not there is left out
PRELOAD = ["pytest", "torch", "torch._dynamo", "fairseq", "fairseq.trainer", "sentencepiece"]


def can_fork(command):
    return len(command) > 2 and list(command[:2]) == [sys.executable, "-m"] and command[2] in MODULES


@lru_cache(maxsize=1)
def _context():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


@lru_cache(maxsize=1)
def _default_path():
    """``sys.path`` of an interpreter that no test has touched, without its first entry."""
    code = "import sys; print('\\n'.join(sys.path[1:]))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


class Forked:
    """What of ``subprocess.Popen`` the harness needs, for a command that :func:`can_fork`. It leads a session of its own,
    and its standard error goes where its standard output does. ``prepare``, a function that can be pickled, is called in it
    just before the command begins."""

    def __init__(self, command, cwd=None, env=None, prepare=None):
        handle, self.log = tempfile.mkstemp(suffix=".log")
        os.close(handle)
        folder, environment = str(cwd or os.getcwd()), {**os.environ, **(env or {})}
        arguments = ([str(part) for part in command[2:]], folder, environment, _default_path(), self.log, prepare)
        self.process = _context().Process(target=_run, args=arguments)
        self.process.start()
        self.pid = self.process.pid

    @property
    def returncode(self):
        return self.process.exitcode

    def poll(self):
        return self.process.exitcode

    def wait(self, timeout=None):
        self.process.join(timeout)
        if self.process.is_alive():
            raise subprocess.TimeoutExpired(self.log, timeout)
        return self.returncode

    def kill(self):
        self.process.kill()

    def read(self):
        """What it printed; once, after it ended."""
        self.process.join()
        with open(self.log, encoding="utf-8", errors="replace") as file:
            text = file.read()
        os.unlink(self.log)
        return text


def _run(arguments, folder, environment, path, log, prepare):
    gc.freeze()  # what the server has imported is no garbage: not to be looked through again and again
    os.setsid()
    multiprocessing.set_start_method(None, force=True)  # or data workers would be forked from a server as well
    with open(log, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    # what importing fairseq left: a command configures logging before it imports it
    for handler in logging.root.handlers[:]:
        logging.root.removeHandler(handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments
    extra = [part for part in environment.get("PYTHONPATH", "").split(os.pathsep) if part and part not in path]
    sys.path[:] = [folder, *extra, *path]
    if prepare is not None:
        prepare()
    try:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    except SystemExit as error:
        code = error.code
        if code is not None and not isinstance(code, int):
            print(error, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    else:
        code = 0
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)
