"""What the pages show is run: every fenced block of every ``*.md`` of the project.

For whoever writes a page: fence every block (```` ```bash ````, ```` ```python ````, or no language for output), and give
whole commands, with no ``...`` in them. Then

- a Python block is run as it stands, in an empty folder;
- a shell block is run command by command, in a folder that has what ``make_world`` in ``tests/test_docs_run.py`` lists
  (``data-bin``, ``sp.model``, ``phrases.txt``, checkpoints, ...): trainings shrunk to two updates of a tiny model,
  ``maskplugins`` as it stands. Blocks under ``examples/`` run with the slow tests, all others always;
- ``python examples/NAME/run.py ...`` (and ``benchmarks/``) is read by that script's own argparse parser, and not run;
- of ``pip install`` the requirements are compared with ``setup.py`` and ``scripts/lib.sh``;
- other programs have to stand in :data:`ONLY_READ`, with the reason why they are not run. A command that nothing here
  knows fails.

Variables that a block sets, and the first value of a loop over some, are put in.
"""

import argparse
import re
import runpy
import subprocess
import sys

import doc_pages
import harness
import pytest
from fairseq import options
from packaging.requirements import Requirement

ONLY_READ = {
    "python -m venv": "makes an environment: scripts/test.sh does that before any test",
    "python -m build": "tests/test_packaging.py builds",
    "source": "enters an environment",
    "bash scripts/": "sets up environments, fetches text and trains for minutes",
    "git clone": "needs the network",
    "cd": "goes with git clone",
    "pip uninstall": "changes the environment of the tests",
    "spark-submit": "needs a cluster",
    "nvidia-smi": "needs a GPU",
    "torchrun": "needs several GPUs",
}


def program(words):
    """The first words of a command, any Python called ``python``."""
    return re.sub(r"^python[\d.]*\b", "python", " ".join(words))


# Reading


def read_training(words):
    """By fairseq's own parser, with the options of whatever the command chooses."""
    user_dir = words[words.index("--user-dir") + 1] if "--user-dir" in words else None
    if user_dir in (None, "fairseq_maskplugins"):  # another one would stay registered in this process; it is run below
        harness_dir = [str(harness.USER_DIR) if word == "fairseq_maskplugins" else word for word in words[1:]]
        options.parse_args_and_arch(options.get_training_parser(), input_args=harness_dir)


class _Read(Exception):
    """The arguments are what a parser takes."""


def read_by_own_parser(monkeypatch, run):
    """Call a program; it ends when argparse has taken its arguments."""
    parse = argparse.ArgumentParser.parse_args

    def parse_args(self, args=None, namespace=None):
        parse(self, args, namespace)
        raise _Read

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
        with pytest.raises(_Read):
            run()


def read_script(words, monkeypatch):
    script = harness.ROOT / words[1]
    assert script.is_file(), f"{words[1]}: no such script"
    monkeypatch.setattr(sys, "argv", [str(script), *words[2:]])
    monkeypatch.setattr(sys, "path", [str(script.parent), *sys.path])
    before = set(sys.modules)
    try:
        read_by_own_parser(monkeypatch, lambda: runpy.run_path(str(script), run_name="__main__"))
    finally:
        for name in set(sys.modules) - before:  # scripts of other folders may have helpers of the same name
            if str(harness.ROOT / words[1].split("/")[0]) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def read_tool(words, monkeypatch):
    from fairseq_maskplugins.cli import cli_fisher
    from fairseq_maskplugins.cli.main import main

    if words[1] == "fisher" and words[2] not in ("select", "show"):
        rest = cli_fisher._fisher_parser().parse_known_args(words[2:])[1]
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
    elif re.match(r"python (examples|benchmarks|scripts)/", line):
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
        assert any(line.startswith(known) for known in ONLY_READ), (
            f"{' '.join(words)}: this command has no treatment; see the text at the head of {__file__}"
        )
        for word in words[1:]:
            assert not word.startswith("scripts/") or (harness.ROOT / word).is_file(), f"{word}: no such script"


@pytest.mark.parametrize("block", doc_pages.all_blocks("bash"), ids=lambda block: block.place)
def test_commands_are_right(block, monkeypatch):
    subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
    commands = doc_pages.find_commands(block.text)
    assert commands, "no command in it"
    for words in commands:
        assert "..." not in words, f"{' '.join(words)}: give the whole command"
        try:
            read(words, monkeypatch)
        except (SystemExit, AssertionError) as error:
            pytest.fail(f"{block.place}: {' '.join(words)}: {error}")


def test_no_block_is_forgotten():
    """Every block is one of these; commands that are only indented would be run by nobody."""
    wrong = [
        f"{block.place}: {block.language}"
        for block in doc_pages.all_blocks()
        if block.language not in ("bash", "python", "")
    ]
    assert wrong == []
    shown = [
        block.place
        for block in doc_pages.all_blocks("")
        if re.search(r"^(\$ |fairseq-|maskplugins |pip )", block.text, re.M)
    ]
    assert shown == [], "commands in a block without a language"


METHODS = sorted(path.parent.name for path in harness.USER_DIR.glob("*/README.md"))


@pytest.mark.parametrize("method", METHODS)
def test_a_methods_page_is_complete(method):
    """When to use it, a command, every flag with default, range or meaning, and limits; a function where there is one."""
    page = harness.USER_DIR / method / "README.md"
    text = page.read_text()
    assert re.search(r"^\*\*When to use (it|which)\.\*\* ", text, re.M)
    assert doc_pages.find_blocks(page, "bash"), "no command"
    assert re.search(r"^\| (flag|argument)[^|]*\| default \| (range|meaning) \|", text, re.M), "no table of flags"
    assert re.search(r"^## .*[Ll]imits", text, re.M), "no limits"
    assert method == "hf" or doc_pages.find_blocks(page, "python"), "no function"
    assert re.search(r"arxiv\.org|arXiv|Su Jianlin", text) or method == "show_masks", "no source"


def test_every_method_has_a_page():
    folders = {path.parent.name for path in harness.USER_DIR.glob("*/__init__.py")} - {"cli"}
    assert folders == set(METHODS)


def test_flags_in_the_tables_exist():
    """Flags in the first column of a table with defaults: options of ours, or fields of fairseq's own tasks and models."""
    from fairseq.models.roberta import model
    from fairseq.tasks import masked_lm

    files = [
        *harness.USER_DIR.rglob("*.py"),
        *(harness.ROOT / "examples").rglob("*.py"),
        model.__file__,
        masked_lm.__file__,
    ]
    code = "\n".join(open(file, encoding="utf-8").read() for file in files)
    wrong, seen = [], 0
    for page in doc_pages.find_pages():
        for table in re.findall(r"^\|[^|]*\| default \|.*\n\|[-| ]*\n((?:\|.*\n)+)", page.read_text(), re.M):
            for flag in re.findall(r"`--([\w-]+)", "\n".join(row.split("|")[1] for row in table.splitlines())):
                seen += 1
                if f'"--{flag}"' not in code and not re.search(rf"^ +{flag.replace('-', '_')}: ", code, re.M):
                    wrong.append(f"{page.relative_to(harness.ROOT)}: --{flag}")
    assert wrong == [] and seen > 80
