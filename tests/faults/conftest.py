"""What the commands of these tests read: a corpus, a checkpoint, Fisher values and a folder of transformers, made once."""

import functools

import fault_commands as commands
import harness
import pytest
from fault_case import Case


@pytest.fixture(scope="session")
def inputs(corpus, tmp_path_factory):
    """A :class:`fault_commands.Inputs`; tests copy what they let come to harm."""
    folder = tmp_path_factory.mktemp("inputs")
    found = commands.Inputs(corpus, folder)
    harness.train(found.data, folder / "run", "--max-update", 2, "--no-epoch-checkpoints", *found.bpe)
    (folder / "run" / "checkpoint_last.pt").rename(found.checkpoint)
    (folder / "text.txt").write_text("".join(f"{line}\n" for line in harness.make_lines(300, seed=5)))
    for name in ("fisher", "export-hf"):
        harness.run(commands.TOOLS[name].command(found, folder), check=True, cwd=harness.ROOT)
    return found


@pytest.fixture(scope="session")
def undisturbed(inputs, tmp_path_factory):
    return functools.lru_cache(maxsize=None)(lambda name: Case(name, inputs, tmp_path_factory.mktemp(name) / "out"))


@pytest.fixture
def cases(undisturbed):
    """:class:`fault_case.Case` by name, as if it had never run."""

    def begin(name):
        found = undisturbed(name)
        found.reset()
        return found

    return begin
