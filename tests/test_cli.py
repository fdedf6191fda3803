"""``maskplugins`` as one command: help with examples, ``doctor``, completion, exit statuses."""

import json
import os
import re
import subprocess
import sys

import harness
import pytest

from fairseq_maskplugins.cli import COMMANDS, main
from fairseq_maskplugins.doctor import BROKEN, NOTE, examine
from fairseq_maskplugins.errors import CheckpointError, UsageError, naming

COMMON = {"numpy": "1.26.4", "sentencepiece": "0.2"}
NEW = {**COMMON, "fairseq-fixed": "0.12.3.1", "torch": "2.13.0+cpu", "hydra-core": "1.3.2", "omegaconf": "2.3.0"}
OLD = {**COMMON, "fairseq": "0.12.2", "torch": "2.9.0", "hydra-core": "1.0.7", "omegaconf": "2.0.6"}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command, capsys):
    with pytest.raises(SystemExit) as error:
        main([command, "--help"])
    assert error.value.code == 0
    text = capsys.readouterr().out
    assert "usage: maskplugins" in text and "example" in text and f"  maskplugins {command} " in text or command == "doctor"
    assert f"maskplugins {command}" in text.split("examples:\n" if "examples:\n" in text else "example:\n")[1]


@pytest.mark.parametrize("command", ["pmi build", "pmi stats", "fisher select", "fisher show"])
def test_help_of_actions_has_examples(command, capsys):
    with pytest.raises(SystemExit) as error:
        main([*command.split(), "--help"])
    assert error.value.code == 0
    text = capsys.readouterr().out
    assert f"usage: maskplugins {command}" in text
    shown = re.split(r"^examples?:\n", text, flags=re.M)[1].splitlines()
    assert all(line.startswith(f"  maskplugins {command} ") for line in shown if line)
    # what is shown is taken: options that the command has, and nothing missing
    flags = {flag for line in shown for flag in line.split() if flag.startswith("--")}
    assert flags <= set(re.findall(r"--[\w-]+", text.split("example")[0]))


def test_help_tells_exit_statuses(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "exit status: 0 done, 1 failed (one line on standard error says why), 2" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "python, versions, failures, level, what, fix",
    [
        ((3, 11), NEW, {}, "ok", "nothing wrong with Python 3.11 and fairseq-fixed 0.12.3.1", ""),
        ((3, 10), OLD, {}, "ok", "nothing wrong with Python 3.10 and fairseq 0.12.2", ""),
        ((3, 11), OLD, {}, BROKEN, "fairseq 0.12.2 does not import on Python 3.11", "fairseq-fixed==0.12.3.1"),
        ((3, 9), OLD, {}, BROKEN, "Python 3.9 is not supported", "Python 3.10 to 3.13"),
        ((3, 10), {**OLD, "fairseq": None}, {}, BROKEN, "neither fairseq nor fairseq-fixed", "pip<24.1"),
        ((3, 10), {**OLD, **NEW}, {}, BROKEN, "both installed", "pip uninstall fairseq fairseq-fixed"),
        ((3, 10), {**OLD, "omegaconf": "2.3.0"}, {}, BROKEN, "omegaconf below 2.1", "omegaconf==2.0.6"),
        ((3, 10), {**OLD, "pip": "24.1"}, {}, NOTE, "pip 24.1 refuses", 'pip install "pip<24.1"'),
        ((3, 12), {**NEW, "hydra-core": "1.0.7"}, {}, BROKEN, "needs hydra-core 1.3", "hydra-core==1.3.2"),
        ((3, 11), {**NEW, "numpy": "2.4.6"}, {}, NOTE, "--sample-break-mode eos", "numpy<2"),
        ((3, 10), {**OLD, "torch": "2.6.0"}, {}, BROKEN, "torch 2.6.0 is too old", "pip<24.1"),
        ((3, 11), {**NEW, "sentencepiece": None}, {}, NOTE, "sentencepiece is not installed", "pip install sentencepiece"),
        ((3, 11), NEW, {"torchaudio": "OSError"}, NOTE, "torchaudio None does not load", "pip uninstall torchaudio"),
        ((3, 11), NEW, {"fairseq": "ImportError: x"}, BROKEN, "fairseq does not import: ImportError: x", "--force-reinstall"),
    ],
)
def test_known_conflicts(python, versions, failures, level, what, fix):
    (found,) = examine(python, versions, failures)
    assert found.level == level and what in found.what and fix in found.fix
    assert "\n" not in found.what + found.fix


def test_doctor_here(capsys):
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] and report["generation"].startswith("fairseq") and report["versions"]["torch"]
    assert report["python"] == ".".join(map(str, sys.version_info[:3])) and isinstance(report["gpus"], list)
    assert main(["doctor"]) == 0
    assert report["generation"] in capsys.readouterr().out


def test_doctor_works_where_nothing_else_does(tmp_path):
    """With a fairseq that can't be imported the package can't either; doctor says so, with exit status 1."""
    (tmp_path / "fairseq").mkdir()
    (tmp_path / "fairseq" / "__init__.py").write_text("raise ImportError('half installed')\n")
    command = [sys.executable, "-m", "fairseq_maskplugins.cli", "doctor", "--json"]
    paths = os.pathsep.join(map(str, (tmp_path, harness.ROOT)))
    env = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert not report["ok"]
    assert any("fairseq does not import: ImportError: half installed" in f["what"] for f in report["findings"])


def test_completion_completes(tmp_path, capsys):
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion.sh"
    script.write_text(capsys.readouterr().out)

    def complete(*words):
        line = " ".join(f"'{word}'" for word in words)
        code = f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _maskplugins; echo ${{COMPREPLY[@]}}"
        return subprocess.run(["bash", "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.split()

    assert complete("maskplugins", "ex") == ["export-hf"]
    assert sorted(complete("maskplugins", "")) == sorted(COMMANDS)
    assert "--sentencepiece-model" in complete("maskplugins", "export-hf", "--s")
    assert complete("maskplugins", "completion", "z") == ["zsh"]
    assert complete("maskplugins", "correct-embeddings", "--head", "f") == ["follow"]
    assert complete("maskplugins", "pmi", "b") == ["build"]
    assert complete("maskplugins", "export-hf", "file") == []  # files are the shell's own
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("autoload -U +X bashcompinit")


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("show-masks",)])
def test_help_imports_nothing_slow(command):
    code = (
        f"import sys; from fairseq_maskplugins.cli import main\ntry: main([{command!r}, '--help'])\nexcept SystemExit: pass\n"
        "print({'torch', 'fairseq', 'omegaconf', 'transformers'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=harness.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()", done.stdout


def test_exit_status_of_a_wrong_command_line(capsys):
    for arguments in ([], ["nothing"], ["export-hf"], ["completion", "fish"]):
        with pytest.raises(SystemExit) as error:
            main(arguments)
        assert error.value.code == 2


def test_messages_of_parts_that_know_no_path():
    """What is said of a file's content is brought together with the file's name by who has read it."""
    with pytest.raises(UsageError) as error, naming({"dict.txt": "data-bin/dict.txt", "config.json": "hf/config.json"}):
        raise UsageError("dict.txt: holds no words: dict.txt: only specials")
    assert str(error.value) == "fairseq_maskplugins: data-bin/dict.txt: holds no words: dict.txt: only specials"
    for said in ("dict.txt.gz: is no dictionary", "--dict dict.txt: no such file", "dict.txt"):
        with pytest.raises(UsageError) as error, naming({"dict.txt": "data-bin/dict.txt"}):
            raise UsageError(said)
        assert error.value.message == said
    with pytest.raises(ValueError, match="^dict.txt: of another kind$"), naming({"dict.txt": "data-bin/dict.txt"}):
        raise ValueError("dict.txt: of another kind")
    assert str(CheckpointError("its head: is none").at("a.pt")) == "fairseq_maskplugins: a.pt: its head: is none"
