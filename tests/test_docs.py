"""What the pages show is run: every fenced block of every ``*.md`` of the project.

For whoever writes a page: fence every block (```` ```bash ````, ```` ```python ````, or no language for output), and give
whole commands, with no ``...`` in them. Then

- a Python block is run as it stands, in an empty folder;
- a shell block is run command by command, in a folder that has what ``make_world`` in ``tests/test_docs_run.py`` lists
  (``data-bin``, ``sp.model``, ``phrases.txt``, checkpoints, ...): trainings shrunk to two updates of a tiny model,
  ``maskplugins`` as it stands. Where a page names data, a checkpoint, a tokenizer or a list of its own, those of that folder
  stand in. Blocks under ``examples/`` run with the slow tests, all others always;
- ``python examples/NAME/run.py ...`` (and ``benchmarks/``, ``tests/``) is read by that script's own argparse parser, and not run;
- of ``pip install`` the requirements are compared with ``setup.py`` and ``scripts/lib.sh``;
- other programs have to stand in ``ONLY_READ`` of ``tests/doc_commands.py``, with the reason why they are not run. A command
  that nothing here knows fails.

Variables that a block sets, and the first value of a loop over some, are put in.
"""

import re
import subprocess

import doc_commands
import doc_pages
import harness
import pytest


@pytest.mark.parametrize("block", doc_pages.all_blocks("bash"), ids=lambda block: block.place)
def test_commands_are_right(block, monkeypatch):
    subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
    commands = doc_pages.find_commands(block.text)
    assert commands, "no command in it"
    for words in commands:
        assert "..." not in words, f"{' '.join(words)}: give the whole command"
        try:
            doc_commands.read(words, monkeypatch)
        except (SystemExit, Exception) as error:
            pytest.fail(f"{block.place}: {' '.join(words)}: {error}")


@pytest.mark.parametrize(
    "command, said",
    [
        ("fairseq-generate data-bin", "has no treatment"),
        ("fairseq-train data-bin --arch roberta_base --no-such-option 1", "no-such-option"),
        ("maskplugins show-masks data-bin --no-such-option", "no-such-option"),
        ("python examples/mapnet/run.py OUT --no-such-option", "no-such-option"),
        ("python examples/mapnet/nothing.py OUT", "no such script"),
        ("pip install torch==1.0", "not what is tested"),
        ("pip install 'fairseq_maskplugins[nothing]'", "no extra 'nothing'"),
    ],
)
def test_wrong_commands_are_found(command, said, monkeypatch, capsys):
    with pytest.raises((SystemExit, AssertionError)) as error:
        doc_commands.read(doc_pages.find_commands(command)[0], monkeypatch)
    assert said in str(error.value) + capsys.readouterr().err


def test_no_block_is_forgotten():
    """Every block is one of these; commands that are only indented would be run by nobody."""
    wrong = [
        f"{block.place}: {block.language}" for block in doc_pages.all_blocks() if block.language not in ("bash", "python", "")
    ]
    assert wrong == []
    shown = [
        block.place for block in doc_pages.all_blocks("") if re.search(r"^(\$ |fairseq-|maskplugins |pip )", block.text, re.M)
    ]
    assert shown == [], "commands in a block without a language"


NO_METHODS = {"fill_mask"}  # a tool with a short page
METHODS = sorted({path.parent.name for path in harness.USER_DIR.glob("*/README.md")} - NO_METHODS)


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
    folders = {path.parent.name for path in harness.USER_DIR.glob("*/__init__.py")} - NO_METHODS
    assert folders == set(METHODS)


def test_flags_in_the_tables_exist():
    """Flags in the first column of a table with defaults: options of ours, or fields of fairseq's own tasks and models."""
    from fairseq.models.roberta import model
    from fairseq.tasks import masked_lm

    files = [*harness.USER_DIR.rglob("*.py"), *(harness.ROOT / "examples").rglob("*.py"), model.__file__, masked_lm.__file__]
    code = "\n".join(open(file, encoding="utf-8").read() for file in files)
    wrong, seen = [], 0
    for page in doc_pages.find_pages():
        for table in re.findall(r"^\|[^|]*\| default \|.*\n\|[-| ]*\n((?:\|.*\n)+)", page.read_text(), re.M):
            for flag in re.findall(r"`--([\w-]+)", "\n".join(row.split("|")[1] for row in table.splitlines())):
                seen += 1
                if f'"--{flag}"' not in code and not re.search(rf"^ +{flag.replace('-', '_')}: ", code, re.M):
                    wrong.append(f"{page.relative_to(harness.ROOT)}: --{flag}")
    assert wrong == [] and seen > 80
