"""The blocks of the pages are run; ``tests/test_docs.py`` says how, and reads what is not."""

import os
import re
import sys

import doc_pages
import harness
import pytest

# shrinks any training to two updates of a tiny model on this machine; a later option overrides an earlier one
SHRINK = (
    "--cpu --encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2 "
    "--max-positions 128 --max-update 2 --batch-size 4 --update-freq 1 --num-workers 0 --log-interval 1 --log-format json"
).split()
SMALL = (
    "checkpoint.save_dir=elsewhere optimization.max_update=2 dataset.batch_size=4 dataset.num_workers=0 common.log_format=json"
).split()


def start(module, words, folder):
    env = {"PYTHONPATH": os.pathsep.join([str(folder), str(harness.ROOT)]), "PWD": str(folder)}
    return harness.run([sys.executable, "-m", module, *words], cwd=folder, env=env)


def use_world(words, folder):
    """Files of a page's own that are not here: the world's stand in for them."""
    inputs = {"--finetune-from-model": "checkpoints/checkpoint_best.pt", "--restore-file": "checkpoints/checkpoint_best.pt"}
    inputs.update({"--sentencepiece-model": "sp.model", "--pmi-vocab": "phrases.txt"})
    found = list(words)
    for place, word in enumerate(words):
        fallback = "data-bin" if place == 0 else inputs.get(words[place - 1])
        if fallback and not word.startswith("-") and not (folder / word).exists():
            found[place] = fallback
    return found


def train(words, folder, *more):
    """A training of the pages, shrunk: it logs both updates and ends."""
    options = [word for word in use_world(words[1:], folder) if word != "--fp16"] + SHRINK
    options += ["--tokens-per-sample", "128"] if "decoupled_mlm" in words else ["--shorten-method", "truncate"]
    log = harness.Log(start("fairseq_cli.train", [*options, *more], folder))
    assert log.returncode == 0 and sorted(log.losses()) == [1, 2] and "done training" in log.text, log.text[-3000:]


def run(words, folder):
    if words[0] == "fairseq-train":
        train(words, folder, "--no-save", "--save-dir", "elsewhere")  # not to resume what is in checkpoints
        return
    if words[0] == "fairseq-hydra-train":
        options = [word.replace("$PWD", str(folder)) for word in words[1:]] + SMALL
        done = start("fairseq_cli.hydra_train", options, folder)
    elif words[:2] == ["maskplugins", "fisher"] and words[2] not in ("select", "show"):
        done = start("fairseq_maskplugins.cli", words[1:] + SHRINK + ["--shorten-method", "truncate"], folder)
    elif words[0] == "fairseq-preprocess":
        (folder / "data-bin").unlink()  # a link: the data that it would replace is that of all tests
        done = start("fairseq_cli.preprocess", words[1:], folder)
    else:
        fewer = "--rows 4 --masks 2 --groups 2".split() if words[1] == "variance" else []
        done = start("fairseq_maskplugins.cli", [*words[1:], *fewer], folder)
    assert done.returncode == 0, done.stdout[-3000:]


def runnable_blocks():
    for block in doc_pages.all_blocks("bash"):
        commands = [words for words in doc_pages.find_commands(block.text) if runnable(words)]
        if commands:
            example = "examples" in block.page.relative_to(harness.ROOT).parts[:-1]
            yield pytest.param(commands, id=block.place, marks=pytest.mark.slow if example else ())


def runnable(words):
    if "spark" in words:
        return False  # a cluster's
    return words[0] in ("fairseq-train", "fairseq-preprocess", "fairseq-hydra-train", "maskplugins")


@pytest.fixture(scope="module")
def world(corpus, tmp_path_factory):
    """What commands of the pages find: data, a tokenizer, phrases, and checkpoints of two tiny trainings."""
    folder = tmp_path_factory.mktemp("world")
    links = {"data-bin": corpus / "bin", "fairseq_maskplugins": harness.USER_DIR, "examples": harness.ROOT / "examples"}
    links.update({name: corpus / name for name in ("sp.model", "phrases.txt", "train.txt", "train.sp", "valid.sp")})
    links.update({"dict.txt": corpus / "bin" / "dict.txt", "train.bpe": corpus / "train.sp", "valid.bpe": corpus / "valid.sp"})
    for name, target in links.items():
        (folder / name).symlink_to(target)
    (folder / "corpus").mkdir()
    (folder / "corpus" / "part1.txt").symlink_to(corpus / "train.txt")
    tokenizer = "--bpe sentencepiece --sentencepiece-model sp.model".split()
    for name, options in (("checkpoints", [*harness.MLM, "--criterion", "mapnet"]), ("tuned", harness.LABELLED)):
        words = ["fairseq-train", "data-bin", "--user-dir", "fairseq_maskplugins", *options, *tokenizer]
        train([*words, *"--arch roberta_base --optimizer adam --lr 0.001".split()], folder, "--save-dir", name)
    return folder


@pytest.mark.parametrize("commands", list(runnable_blocks()))
def test_commands_run(commands, world, tmp_path):
    for entry in world.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    for words in commands:
        run(words, tmp_path)


@pytest.mark.parametrize("block", doc_pages.all_blocks("python"), ids=lambda block: block.place)
def test_python_blocks_run(block, tmp_path):
    (tmp_path / "block.py").write_text(block.text)
    env = {"PYTHONPATH": str(harness.ROOT)}
    harness.run([sys.executable, "-m", "block"], cwd=tmp_path, env=env, check=True)


def test_errors_in_the_readme_are_real(data_bin):
    """The lines under "Error messages" are those of the code."""
    shown = re.search(r"## Error messages\n.*?\n\n```\n(.*?)```", (harness.ROOT / "README.md").read_text(), re.DOTALL).group(1)
    first, second = shown.splitlines()[:2]
    for line, options in ((first, ["--corruption-rate", "1.5"]), (second, ["--masker", "whole_word"])):
        with pytest.raises(ValueError) as error:
            harness.make_task(data_bin, *options)[0].load_dataset("train")
        assert str(error.value) == line
