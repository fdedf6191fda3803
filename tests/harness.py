"""Running fairseq as its users do: small corpora, ``fairseq-train`` in a process of its own."""

import copy
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

from forked import Forked, can_fork
from training_log import Log, assert_same_weights, load_weights, trained  # noqa: F401  (tests use them as harness's)

ROOT = Path(__file__).resolve().parent.parent
USER_DIR = ROOT / "fairseq_maskplugins"
RANK_DIGEST = ROOT / "tests" / "plugins" / "rank_digest"
CPU_DDP = ROOT / "tests" / "plugins" / "cpu_ddp"

# a model that trains in a second; --batch-size and lengths leave several updates an epoch
TINY = (
    "--arch roberta_base --encoder-layers 2 --encoder-embed-dim 32 --encoder-ffn-embed-dim 64 "
    "--encoder-attention-heads 2 --max-positions 64 --dropout 0.1 --optimizer adam --lr 0.001 "
    "--lr-scheduler fixed --clip-norm 1.0 --seed 3 --cpu --log-format json --log-interval 1"
).split()
MLM = "--task decoupled_mlm --criterion decoupled_mlm --tokens-per-sample 32 --batch-size 8".split()
# without data workers: where fairseq 0.12.2 makes a validation's iterator anew, what is left of the last one makes the
# training wait five seconds for its worker
LABELLED = (
    "--task sentence_prediction --criterion sentence_prediction --num-classes 2 --init-token 0 --separator-token 2 "
    "--classification-head-name head --batch-size 8 --shorten-method truncate --num-workers 0"
).split()
MAPNET = (
    "--criterion mapnet --mapnet-embed-dim 16 --mapnet-layers 0 --mapnet-warmup-updates 0 --max-update 2 --tokens-per-sample 40"
).split()

_SUBJECTS = "the old captain,a young engineer,her quiet neighbour,the mayor of Lisbon,our teacher,every sailor".split(",")
_VERBS = "described,remembered,forgot,repaired,painted,measured,abandoned,photographed".split(",")
_OBJECTS = "the harbour,a broken clock,the railway station,an unusual map,the winter garden,two wooden boats".split(",")
_TAILS = "before the storm.,in the spring of 1934.,without saying a word.,for the last time.,near New York City.".split(",")


def make_lines(count, seed=0, longest=4):
    """``count`` lines of 1 to ``longest`` sentences each, the same for the same seed."""
    rng = random.Random(seed)

    def sentence():
        text = " ".join(rng.choice(part) for part in (_SUBJECTS, _VERBS, _OBJECTS, _TAILS))
        return text[0].upper() + text[1:]

    return [" ".join(sentence() for _ in range(rng.randint(1, longest))) for _ in range(count)]


def build_corpus(folder, train=200, valid=30, vocab_size=90):
    """Write text, a sentencepiece model, pieces, a list of phrases and a data directory ``bin``; returns the folder."""
    import sentencepiece as spm

    folder = Path(folder)
    for split, count, seed in (("train", train, 1), ("valid", valid, 2)):
        (folder / f"{split}.txt").write_text("\n".join(make_lines(count, seed)) + "\n")
    (folder / "phrases.txt").write_text("new york city\nold captain\nthe railway station\nbroken clock\nnear new york\n")
    spm.SentencePieceTrainer.train(
        input=str(folder / "train.txt"), model_prefix=str(folder / "sp"), vocab_size=vocab_size, minloglevel=2
    )
    pieces = spm.SentencePieceProcessor(model_file=str(folder / "sp.model"))
    for split in ("train", "valid"):
        lines = (folder / f"{split}.txt").read_text().splitlines()
        (folder / f"{split}.sp").write_text("".join(" ".join(pieces.encode(x, out_type=str)) + "\n" for x in lines))
    preprocess(folder / "train.sp", folder / "valid.sp", folder / "bin")
    label_corpus(folder)
    return folder


def label_corpus(folder):
    """Add ``bin/input0`` and ``bin/label``, the layout of ``--task sentence_prediction``: is the harbour in the text?"""
    import torch
    from fairseq.data import Dictionary, indexed_dataset

    for part in ("input0", "label"):
        (folder / "bin" / part).mkdir()
    for name in ("train.bin", "train.idx", "valid.bin", "valid.idx", "dict.txt"):
        shutil.copy(folder / "bin" / name, folder / "bin" / "input0" / name)
    (folder / "bin" / "label" / "dict.txt").write_text("yes 1\nno 1\n")
    labels = Dictionary.load(str(folder / "bin" / "label" / "dict.txt"))
    for split in ("train", "valid"):
        path = str(folder / "bin" / "label" / split)
        builder = indexed_dataset.make_builder(path + ".bin", impl="mmap", vocab_size=len(labels))
        for line in (folder / f"{split}.txt").read_text().splitlines():
            label = "yes" if "the harbour" in line else "no"
            builder.add_item(torch.tensor([labels.index(label), labels.eos()]))
        builder.finalize(path + ".idx")


def preprocess(train, valid, out, *options):
    """``fairseq-preprocess --only-source``."""
    args = ["--only-source", "--trainpref", str(train), "--validpref", str(valid), "--destdir", str(out), "--workers", "1"]
    run([sys.executable, "-m", "fairseq_cli.preprocess", *args, *options], check=True)


def run(command, check=False, cwd=None, env=None, timeout=300):
    """Run a command; returns the finished process, standard error merged into ``stdout``."""
    command = [str(part) for part in command]
    if can_fork(command):
        process = Forked(command, cwd=cwd, env=env)
        try:
            process.wait(timeout)
        finally:
            process.kill()
        done = subprocess.CompletedProcess(command, process.returncode, process.read())
    else:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run(command, cwd=cwd, env={**os.environ, **(env or {})}, timeout=timeout, **options)
    assert not check or done.returncode == 0, done.stdout[-4000:]
    return done


def train_command(data, save_dir, *options, base=TINY + MLM, user_dir=USER_DIR):
    command = [sys.executable, "-m", "fairseq_cli.train", str(data), "--user-dir", str(user_dir)]
    return command + list(base) + ["--save-dir", str(save_dir), *map(str, options)]


def train(data, save_dir, *options, check=True, **kwargs):
    """``fairseq-train`` with the tiny model; returns a :class:`Log`."""
    return Log(run(train_command(data, save_dir, *options, **kwargs), check=check))


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def train_ranks(data, save_dirs, *options, ddp="legacy_ddp", timeout=300, check=True, **kwargs):
    """As many ranks as ``save_dirs`` on this machine's CPU with gloo, each with a save directory of its own; returns a
    :class:`Log` of each, whose ``digests`` are those of its weights whenever a checkpoint was due. Ranks on several
    machines differ from these in the address alone."""
    kwargs.setdefault("user_dir", RANK_DIGEST if ddp == "legacy_ddp" else CPU_DDP)
    port = free_port()
    shared = (
        f"--distributed-world-size {len(save_dirs)} --distributed-init-method tcp://127.0.0.1:{port} "
        f"--distributed-no-spawn --distributed-backend gloo --ddp-backend {ddp}"
    ).split()
    ranks = [
        Forked(train_command(data, save_dir, *options, *shared, "--distributed-rank", rank, **kwargs))
        for rank, save_dir in enumerate(save_dirs)
    ]
    try:
        for process in ranks:
            process.wait(timeout)
    finally:
        for process in ranks:
            process.kill()
    logs = [Log(subprocess.CompletedProcess([], process.returncode, process.read())) for process in ranks]
    for log in logs:
        assert not check or log.returncode == 0, log.text[-4000:]
    return logs


def train_two_ranks(data, save_dirs, *options, **kwargs):
    """:func:`train_ranks` with two."""
    assert len(save_dirs) == 2
    return train_ranks(data, save_dirs, *options, **kwargs)


def kill_when(command, ready, timeout=300, **options):
    """Start a command and SIGKILL it, with its children, once ``ready()`` is true; returns what it printed."""
    process = Forked(command, **options)
    deadline = time.monotonic() + timeout
    try:
        while not ready():
            assert process.poll() is None, f"it ended before it could be killed:\n{process.read()[-4000:]}"
            assert time.monotonic() < deadline, "it never got as far as to be killed"
            time.sleep(0.02)
    finally:
        while process.poll() is None and os.getpgid(process.pid) != process.pid:
            time.sleep(0.02)  # the child leads a group of its own only once it has begun
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.read()


def parse(data, *options, base=TINY + MLM):
    """The configuration that ``fairseq-train`` would make of these options, in this process."""
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    import fairseq_maskplugins.plugins  # noqa: F401  (a --user-dir that was imported before fairseq registers nothing)

    made_for = TASK_DATACLASS_REGISTRY.get("decoupled_mlm")  # another one where a masker brought options
    cfg = copy.deepcopy(_parse(tuple(map(str, (*base, *options))), made_for))
    for group in cfg.values():
        if getattr(group, "data", None) == DATA:  # a namespace where an architecture has no dataclass
            group.data = str(data)
    return cfg


DATA = "the data directory"


@cache
def _parse(arguments, made_for):
    """For any data directory, as fairseq needs a second or two each time."""
    from fairseq import options as fairseq_options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    parser = fairseq_options.get_training_parser()
    found = fairseq_options.parse_args_and_arch(parser, input_args=[DATA, "--user-dir", str(USER_DIR), *arguments])
    return convert_namespace_to_omegaconf(found)


def make_task(data, *options, **kwargs):
    """``(task, cfg)`` as ``fairseq-train`` would set them up."""
    from fairseq import tasks

    cfg = parse(data, *options, **kwargs)
    return tasks.setup_task(cfg.task), cfg


def batches(task, cfg, split="train", epoch=1, num_workers=0, shuffle=True, **kwargs):
    """The batches of an epoch, as the trainer's data loader gives them."""
    if split not in task.datasets:
        task.load_dataset(split, epoch=epoch)
    kwargs.setdefault("max_sentences", cfg.dataset.batch_size)
    kwargs.setdefault("max_tokens", cfg.dataset.max_tokens)
    iterator = task.get_batch_iterator(
        task.dataset(split), seed=cfg.common.seed, num_workers=num_workers, epoch=epoch, disable_iterator_cache=True, **kwargs
    )
    return list(iterator.next_epoch_itr(shuffle=shuffle, set_dataset_epoch=shuffle))
