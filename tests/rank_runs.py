"""Trainings of the table of cases on several ranks of this machine's CPUs, and comparisons of their weights."""

import sys

import harness
import numpy as np
import torch
from cases import CASES

from fairseq_maskplugins.child_tuning import maskfile

BY_NAME = {case.name: case for case in CASES}
STEPS = "--max-update 4 --save-interval-updates 2".split()


def options_of(name, corpus):
    return [option.replace("{corpus}", str(corpus)) for option in BY_NAME[name].options]


def ranks(name, corpus, folder, *options, world=2, **kwargs):
    """Logs of ranks that train a case; they end with the same weights."""
    base = BY_NAME[name].base
    folders = [folder / f"rank{rank}" for rank in range(world)]
    logs = harness.train_ranks(corpus / "bin", folders, *options_of(name, corpus), *options, base=base, **kwargs)
    assert logs[0].digests and all(log.digests == logs[0].digests for log in logs)
    return logs


def assert_close_weights(one, other):
    a, b = harness.load_weights(one), harness.load_weights(other)
    for name, weight in a.items():
        assert torch.allclose(weight, b[name], atol=2e-5), name


def fixed_mask(data, path):
    """A mask file for the tiny model: every third entry."""
    task, cfg = harness.make_task(data)
    named = dict(task.build_model(cfg.model).named_parameters())
    tensors = {name: (np.arange(p.numel()).reshape(p.shape) % 3 == 0) for name, p in named.items()}
    listed = [{"name": name, "shape": list(p.shape), "covered": True} for name, p in named.items()]
    maskfile.write(str(path), "mask", tensors, {"parameters": listed, "reserve_p": 1 / 3})
    return path


def spawn(corpus, folder, *options):
    command = harness.train_command(
        corpus / "bin", folder, *options, "--distributed-world-size", 2, "--distributed-backend", "gloo",
        "--ddp-backend", "legacy_ddp", user_dir=harness.CPU_DDP,
    )  # fmt: skip
    command[:3] = [sys.executable, "-c", "import sys; sys.argv[0] = 'train'; from fairseq_cli.train import cli_main; cli_main()"]
    return harness.run(command, env={"MASKPLUGINS_TEST_GPUS": "2"})
