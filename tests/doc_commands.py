"""Reading the commands of the pages without running them: ``tests/test_docs.py`` says which are only read."""

import argparse
import re
import runpy
import sys

import harness
import pytest
from fairseq import options
from packaging.requirements import Requirement

ONLY_READ = {
    "python -m venv ": "makes an environment: scripts/test.sh does that before any test",
    "python -m build ": "tests/test_packaging.py builds",
    "source ": "enters an environment",
    "bash examples/": "tests/test_example_commands.py runs it with --dry-run",
    "sbatch ": "tests/test_pretrain_24h.py runs the script with a stub of Slurm",
    "python -m fairseq.examples.roberta.multiprocessing_bpe_encoder ": "fairseq's own, on text that is not here",
    "python tests/long_runs/memory.py ": "trains for minutes, with fairseq's own options",
    "bash scripts/": "sets up environments, fetches text and trains for minutes",
    "git clone ": "needs the network",
    "wget ": "needs the network",
    "curl ": "needs the network",
    "unzip ": "goes with what was fetched",
    "tar ": "goes with what was fetched",
    "cd ": "goes with what was fetched",
    "mkdir ": "does nothing that could go wrong here",
    "pip uninstall ": "changes the environment of the tests",
    "spark-submit ": "needs a cluster",
    "nvidia-smi ": "needs a GPU",
    "torchrun ": "needs several GPUs",
}


def program(words):
    """The first words of a command, any Python called ``python``."""
    return re.sub(r"^python[\d.]*\b", "python", " ".join(words))


def read_training(words):
    """By fairseq's own parser, with the options of whatever the command chooses."""
    user_dir = words[words.index("--user-dir") + 1] if "--user-dir" in words else None
    if user_dir in (None, "fairseq_maskplugins"):  # another one would stay registered in this process; it is run below
        harness_dir = [str(harness.USER_DIR) if word == "fairseq_maskplugins" else word for word in words[1:]]
        options.parse_args_and_arch(options.get_training_parser(), input_args=harness_dir)


# our commands find wrong options themselves, behind the second of these; of a script nothing is run after either
BOTH = ("parse_args", "parse_known_args")


class _Read(Exception):
    """The arguments are what a parser takes."""


def read_by_own_parser(monkeypatch, run, parsing=("parse_args",)):
    """Call a program; it ends when argparse has taken its arguments."""
    outermost = [True]  # parsing calls itself, for commands of commands too

    def ends(parse):
        def parse_and_end(self, args=None, namespace=None):
            first, outermost[0] = outermost[0], False
            try:
                found = parse(self, args, namespace)
            finally:
                outermost[0] = first
            if first:
                raise _Read
            return found

        return parse_and_end

    with monkeypatch.context() as patch:
        for name in parsing:
            patch.setattr(argparse.ArgumentParser, name, ends(getattr(argparse.ArgumentParser, name)))
        with pytest.raises(_Read):
            run()


def read_script(words, monkeypatch):
    script = harness.ROOT / words[1]
    assert script.is_file(), f"{words[1]}: no such script"
    monkeypatch.setattr(sys, "argv", [str(script), *words[2:]])
    monkeypatch.setattr(sys, "path", [str(script.parent), *sys.path])
    before = set(sys.modules)
    try:
        read_by_own_parser(monkeypatch, lambda: runpy.run_path(str(script), run_name="__main__"), BOTH)
    finally:
        for name in set(sys.modules) - before:  # scripts of other folders may have helpers of the same name
            if str(harness.ROOT / words[1].split("/")[0]) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def read_tool(words, monkeypatch):
    from fairseq_maskplugins.child_tuning import command as fisher
    from fairseq_maskplugins.cli import main

    if words[1] == "fisher" and words[2] not in ("select", "show"):
        rest = fisher._fisher_parser().parse_known_args(words[2:])[1]
        read_training(["fairseq-train", *rest])
    elif "--user-dir" not in words and words[1:] != ["--version"]:
        read_by_own_parser(monkeypatch, lambda: main(words[1:]))


def read_installation(words):
    """Requirements are well-formed, extras exist, and what is pinned agrees with what is tested."""
    setup = (harness.ROOT / "setup.py").read_text()
    tested = setup + (harness.ROOT / "scripts" / "lib.sh").read_text()
    for word in words[2:]:
        if word.startswith("-"):
            continue
        if word.startswith("."):
            word = "fairseq_maskplugins" + word[1:]
        if word.endswith(".whl"):
            continue
        requirement = Requirement(word)
        for extra in requirement.extras:
            assert f'"{extra}": [' in setup, f"setup.py has no extra {extra!r}"
        assert not requirement.specifier or str(requirement).replace(" ", "") in tested, f"{word} is not what is tested"


def read_hydra(words):
    folder, name = (words[words.index(option) + 1] for option in ("--config-dir", "--config-name"))
    assert (harness.ROOT / folder.replace("$PWD/", "") / f"{name}.yaml").is_file()


def read(words, monkeypatch):
    line = program(words)
    if words[0] == "fairseq-train":
        read_training(words)
    elif words[0] == "maskplugins":
        read_tool(words, monkeypatch)
    elif any(f"{line} ".startswith(known) for known in ONLY_READ):
        for word in words[1:]:
            assert not word.startswith(("scripts/", "examples/")) or (harness.ROOT / word).is_file(), f"{word}: no such script"
    elif re.match(r"python (examples|benchmarks|scripts|tests)/", line):
        read_script(words, monkeypatch)
    elif words[:2] == ["pip", "install"]:
        read_installation(words)
    elif words[0] == "fairseq-hydra-train":
        read_hydra(words)
    elif words[0] == "fairseq-preprocess":
        options.get_preprocessing_parser().parse_args(words[1:])
    elif words[0] == "pytest" or line.startswith("python -m pytest"):
        for word in words:
            assert not word.startswith("tests") or (harness.ROOT / word).exists(), f"{word}: no such test"
    else:
        raise AssertionError(f"{' '.join(words)}: this command has no treatment; see the head of tests/test_docs.py")
