"""What the documentation shows is run: Python blocks as they stand, fairseq-train commands on a small model."""

import re
import shlex
import sys

import harness
import pytest

PAGES = sorted([harness.ROOT / "README.md", harness.ROOT / "CONTRIBUTING.md", *harness.USER_DIR.rglob("README.md")])
# shrinks any command to two updates of a tiny model on this machine; a later option overrides an earlier one
SHRINK = (
    "--cpu --encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2 --max-update 2 "
    "--batch-size 4 --update-freq 1 --no-save --num-workers 0 --log-interval 1 --log-format json"
).split()


def blocks(language):
    for page in PAGES:
        for number, code in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)):
            yield pytest.param(code, id=f"{page.relative_to(harness.ROOT)}-{number}")


def training_commands():
    for block in blocks("bash"):
        for number, command in enumerate(
            re.findall(r"^fairseq-train data-bin .*?[^\\]$", block.values[0], re.DOTALL | re.MULTILINE)
        ):
            if "decoupled_mlm" in command:
                yield pytest.param(command.replace("\\\n", " "), id=f"{block.id}-{number}")


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code, tmp_path):
    # in a folder of its own: some write files
    harness.run([sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(harness.ROOT)}, check=True)


@pytest.mark.parametrize("command", training_commands())
def test_training_commands_run(command, corpus, tmp_path):
    words = shlex.split(command)
    assert words[:4] == ["fairseq-train", "data-bin", "--user-dir", "fairseq_maskplugins"]
    options = [
        str(corpus / word) if (corpus / word).is_file() else word for word in words[4:] if word != "--fp16"
    ] + SHRINK
    log = harness.train(corpus / "bin", tmp_path / "run", *options, base=["--seed", "1"])
    assert "num_updates" in log.text and "done training" in log.text


def test_errors_in_the_readme_are_real(data_bin):
    """The lines under "What bad input gets" are what the code says."""
    shown = re.search(
        r"and exit status 1:\n\n```\n(.*?)```", (harness.ROOT / "README.md").read_text(), re.DOTALL
    ).group(1)
    first, second = shown.splitlines()[:2]
    for line, options in ((first, ["--corruption-rate", "1.5"]), (second, ["--masker", "whole_word"])):
        with pytest.raises(ValueError) as error:
            harness.make_task(data_bin, *options)[0].load_dataset("train")
        assert str(error.value) == line
