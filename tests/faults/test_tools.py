"""``maskplugins`` commands killed, or out of disk, at the moments they change files: results are whole or not there."""

import re
import zlib

import commands
import folders
import harness
import moments
import pytest
from choose import choose

QUICK = ("pmi-build", "fisher", "correct-embeddings", "export-hf", "import-hf", "show-masks")
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
            if self.name not in ("export-hf", "import-hf"):  # these put folders where nothing is
                (self.out / result).write_text("what was there before")

    def run(self, strike=lambda event: None):
        return moments.watch(self.tool.command(self.inputs, self.out), self.out, strike, cwd=harness.ROOT)

    def digest(self):
        found = {**folders.read(self.inputs.folder), **folders.read(self.inputs.data)}
        return {path: zlib.crc32(content or b"") for path, content in found.items()}

    def check(self, **kwargs):
        folders.assert_whole(self.out, self.tool.results, self.old, self.new, **kwargs)

    def check_undone(self):
        """Undisturbed it does now what it would have done, and cleans up."""
        done = self.run()
        assert done.returncode == 0, done.text
        assert folders.read(self.out) == self.new
        assert self.digest() == self.given


@pytest.mark.parametrize("name", EACH)
def test_killed(name, inputs, tmp_path):
    case = Case(name, inputs, tmp_path / "out")
    renames = [event.number for event in case.events if event.call.startswith("rename")]
    for moment in choose(name, range(1, len(case.events) + 1), 2, always=renames[-1:]):
        done = case.run(moments.kill_at(moment))
        assert done.returncode == -9, done.text
        case.check()
    case.check_undone()


@pytest.mark.parametrize("name", EACH)
def test_full_disk(name, inputs, tmp_path):
    case = Case(name, inputs, tmp_path / "out")
    spacious = [event.number for event in case.events if event.needs_space]
    for moment in choose(name, spacious, 2, always=spacious[:1]):
        check_full(case, moment)
    case.check_undone()


def check_full(case, moment):
    done = case.run(moments.full_from(moment))
    assert done.returncode == 1, done.text
    assert_one_line(done.text, str(case.out))
    case.check(litter=False)


def assert_one_line(text, path):
    """The last line is ours and names a path or option; no traceback comes before it."""
    lines = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
    assert "Traceback" not in text, text
    assert lines[-1].startswith("fairseq_maskplugins: ") and (path in lines[-1] or "--temp-dir" in lines[-1]), text


@pytest.mark.slow
@pytest.mark.parametrize("name", commands.TOOLS)
def test_every_moment(name, inputs, tmp_path):
    case = Case(name, inputs, tmp_path / "out")
    for event in case.events:
        case.reset()
        done = case.run(moments.kill_at(event.number))
        assert done.returncode == -9, done.text
        case.check()
        case.check_undone()
        if event.needs_space:
            case.reset()
            check_full(case, event.number)
            case.check_undone()
