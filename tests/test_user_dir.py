"""``--user-dir`` from anywhere and by any name, the rule of imports, and plug-ins of users that build on ours."""

import ast
import sys

import harness
import pytest

PACKAGE = harness.USER_DIR
# these import fairseq when they are imported; others may import it inside a function
ADAPTERS = {
    *("dataset.py", "dictionary.py", "task.py", "criterion.py", "model.py", "optimizer.py", "plugins.py", "config.py"),
    *("fairseq_fixes.py", "loading.py", "fisher_pass.py", "gradients.py", "proposals.py", "stats_command.py"),
    "stats_rows.py",
}
IN_FUNCTIONS = {"checkpoints.py", "cli.py", "compat.py", "export_command.py"}


def parse_arguments(user_dir, cwd, before=""):
    """Have fairseq import a user dir and parse our task's options, in a process of its own."""
    code = f"""
{before}
from fairseq import options
parser = options.get_training_parser()
argv = ["data", "--user-dir", {str(user_dir)!r}, "--task", "decoupled_mlm", "--corruption-rate", "0.3", "--arch", "roberta_base"]
for _ in range(2):  # twice in one process
    args = options.parse_args_and_arch(options.get_training_parser(), input_args=argv)
assert args.corruption_rate == 0.3
import fairseq_maskplugins
from fairseq.tasks import TASK_REGISTRY
assert TASK_REGISTRY["decoupled_mlm"].__module__ == "fairseq_maskplugins.decoupled_mlm.task"
"""
    return harness.run([sys.executable, "-W", "ignore", "-c", code], cwd=cwd, check=True)


BY_NAME_FIRST = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); import fairseq_maskplugins"


@pytest.mark.parametrize("before", ["", BY_NAME_FIRST], ids=["", "imported by name first"])
def test_from_anywhere(before, tmp_path):
    """From the checkout, from any directory, and through a symlink."""
    (tmp_path / "fairseq_maskplugins").symlink_to(PACKAGE)
    parse_arguments("fairseq_maskplugins", PACKAGE.parent, before)
    parse_arguments(PACKAGE, tmp_path, before)
    parse_arguments(tmp_path / "fairseq_maskplugins", tmp_path, before)


def test_beside_a_folder_called_fairseq(tmp_path):
    """A checkout of fairseq's sources beside the plug-in must not stand in for the installed fairseq."""
    (tmp_path / "fairseq").mkdir()
    (tmp_path / "fairseq_maskplugins").symlink_to(PACKAGE)
    parse_arguments(tmp_path / "fairseq_maskplugins", cwd=tmp_path)


def fairseq_imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module]
        if any(name.split(".")[0] in ("fairseq", "fairseq_cli") for name in names):
            return True
    return False


def test_only_adapters_import_fairseq():
    found = {path for path in PACKAGE.rglob("*.py") if fairseq_imports(path)}
    assert found, "the test reads no imports"
    wrong = {path for path in found if path.name not in ADAPTERS | IN_FUNCTIONS and path.name != "command.py"}
    assert not wrong


def test_pure_parts_import_without_fairseq():
    """Everything that is no adapter can be used where fairseq, and what it brings, is not installed."""
    pure = [
        p for p in PACKAGE.rglob("*.py") if p.name not in ADAPTERS and p.parent.name != "show_masks" or p.name == "measure.py"
    ]
    names = [".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts) for p in pure]
    assert len(names) > 60
    code = f"""
import sys, importlib
for name in ("fairseq", "hydra", "omegaconf"):
    sys.modules[name] = None  # importing it fails
for name in {names!r}:
    importlib.import_module(name.removesuffix(".__init__"))
"""
    harness.run([sys.executable, "-c", code], check=True)


def test_a_users_own_masker(corpus, tmp_path):
    """examples/extending: a masker with an option of its own, from a user dir that imports ours."""
    example = harness.ROOT / "examples" / "extending"
    options = ["--masker", "every_nth", "--every-nth", "3", "--max-update", "2"]
    log = harness.train(corpus / "bin", tmp_path / "run", *options, user_dir=example)
    assert sorted(log.losses()) == [1, 2]
    bad = harness.train(
        corpus / "bin", tmp_path / "bad", "--masker", "every_nth", "--every-nth", "0", user_dir=example, check=False
    )
    assert bad.text.strip().splitlines()[-1] == "fairseq_maskplugins: --every-nth must be at least 1, got 0"


def test_commands_know_a_users_own_masker(corpus):
    example = harness.ROOT / "examples" / "extending"
    command = [sys.executable, "-m", "fairseq_maskplugins.cli", "show-masks", str(corpus / "bin")]
    options = ["--masker", "every_nth", "--every-nth", "3", "--rows", "1", "--user-dir"]
    done = harness.run([*command, *options, str(example)], check=True)
    assert "sequence 0: " in done.stdout
    done = harness.run([*command, *options, "nowhere"])
    assert done.returncode == 1 and done.stdout.strip().startswith(
        "fairseq_maskplugins: --user-dir nowhere: can't import it: FileNotFoundError"
    )


def test_masker_registry_refuses():
    from dataclasses import dataclass

    from fairseq_maskplugins.maskers import MASKERS, Masker, MaskerConfig, register_masker

    @dataclass
    class Taken(MaskerConfig):
        mask_prob: float = 0.1

    with pytest.raises(ValueError, match="masker 'uniform' is already registered, by UniformMasker"):
        register_masker("uniform")(Masker)
    with pytest.raises(ValueError, match="must extend Masker"):
        register_masker("new")(dict)
    with pytest.raises(ValueError, match="must extend MaskerConfig"):
        register_masker("new", config=dict)(type("New", (Masker,), {}))
    with pytest.raises(ValueError, match="masker 'new': option 'mask_prob' is taken by --task decoupled_mlm"):
        register_masker("new", config=Taken)(type("New", (Masker,), {}))
    assert "new" not in MASKERS
