"""A command of ``maskplugins``, what it leaves when nothing disturbs it, and what it must leave when something does."""

import re
import zlib

import fault_commands as commands
import fault_folders as folders
import fault_moments as moments
import harness
import pytest

QUICK = ("pmi-build", "fisher", "correct-embeddings", "export-hf", "import-hf", "show-masks")
FOLDERS = ("export-hf", "import-hf")  # what they write they put where nothing is
EACH = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in commands.TOOLS]


class Case:
    """A command with an output folder of its own, what is there when it begins, and what it leaves undisturbed."""

    def __init__(self, name, inputs, out):
        self.name, self.inputs, self.out, self.tool = name, inputs, out, commands.TOOLS[name]
        self.reset()
        self.old = folders.read(out)
        done = self.run()
        assert done.returncode == 0, done.text
        self.events, self.new = done.events, folders.read(out)
        assert {path.name for path in out.iterdir()} == set(self.tool.results)
        self.given = self.digest()
        self.reset()

    def reset(self):
        folders.empty(self.out)
        for result in self.tool.results:
            if self.name not in FOLDERS:
                (self.out / result).write_text("what was there before")

    @property
    def command(self):
        return self.tool.command(self.inputs, self.out)

    def run(self, strike=lambda event: None, root=None, **kwargs):
        return moments.watch(self.command, root or self.out, strike, cwd=harness.ROOT, **kwargs)

    def digest(self):
        found = {**folders.read(self.inputs.folder), **folders.read(self.inputs.data)}
        return {path: zlib.crc32(content or b"") for path, content in found.items()}

    def check(self, **kwargs):
        folders.assert_whole(self.out, self.tool.results, self.old, self.new, **kwargs)

    def check_undone(self):
        """Undisturbed it does now what it would have done, and cleans up."""
        done_before = self.new.items() <= folders.read(self.out).items() and self.name in FOLDERS
        done = self.run()
        if done_before:
            assert done.returncode == 1 and "must not exist or be an empty folder" in done.text
        else:
            assert done.returncode == 0, done.text
        assert folders.read(self.out) == self.new
        assert self.digest() == self.given


def assert_one_line(text, path):
    """The last line is ours and names a path or option; no traceback comes before it."""
    lines = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
    assert "Traceback" not in text, text
    assert lines[-1].startswith("fairseq_maskplugins: ") and (path in lines[-1] or "--temp-dir" in lines[-1]), text
