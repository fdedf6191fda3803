"""``examples/pretrain_24h``: the recipe's command for any number of GPUs and machines, checked by fairseq's own parser."""

import os
import re
import shlex
import stat
import sys

import harness
import pytest
import torch
import yaml
from fairseq import options as fairseq_options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils

FOLDER = harness.ROOT / "examples" / "pretrain_24h"
TOY = (
    "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 --batch-size 4 "
    "--update-freq 1 --num-workers 0 --log-interval 1 --log-format json --disable-validation --max-update"
).split()


def run(*arguments, script="run.sh", **kwargs):
    return harness.run(["bash", FOLDER / script, *arguments], **kwargs)


def dry_run(*arguments, **kwargs):
    """The words of the command that would be run, without what stands before ``fairseq-train``."""
    words = shlex.split(run("data-bin", "out", "--dry-run", *arguments, check=True, **kwargs).stdout)
    return words[words.index("fairseq-train") + 1 :]


def parse(words):
    parser = fairseq_options.get_training_parser()
    return fairseq_options.parse_args_and_arch(parser, input_args=[str(word) for word in words])


@pytest.mark.parametrize(
    "arguments, rows, frequency, world",
    [("1", 64, 64, 1), ("2", 64, 32, 2), ("8", 64, 8, 8), ("1 --rows 16", 16, 256, 1), ("8 --nodes 4", 64, 2, 32)],
)
def test_every_number_of_gpus_has_the_same_batch(arguments, rows, frequency, world):
    machine = ["--node-rank", "3", "--master", "node1:29501"] if "--nodes" in arguments else []
    args = parse(dry_run("--gpus", *arguments.split(), *machine))
    assert (args.batch_size, args.update_freq, args.distributed_world_size) == (rows, [frequency], world)
    assert rows * frequency * world == 4096
    assert args.distributed_rank == (24 if machine else 0)
    address = {1: None, 32: "tcp://node1:29501"}.get(world, "tcp://localhost:29500")
    assert args.distributed_init_method == address


def test_the_recipe_is_the_configuration_and_the_readme():
    """Three places hold the recipe: they say the same."""
    cfg = convert_namespace_to_omegaconf(parse(dry_run("--gpus", "8")))
    written = yaml.safe_load((harness.ROOT / "examples" / "config" / "decoupled_mlm_full.yaml").read_text())
    compared = 0
    for group, values in written.items():
        for name, value in values.items() if group != "hydra" else ():
            if value == "???":
                continue
            found = getattr(cfg[group], "arch" if (group, name) == ("model", "_name") else name)
            same = float(found) == value if isinstance(value, float) else str(found) == str(value)
            assert same, f"{group}.{name}: the recipe has {found}, decoupled_mlm_full.yaml {value}"
            compared += 1
    assert compared > 25

    text = (harness.ROOT / "README.md").read_text()
    shown = next(
        shlex.split(block.replace("\\\n", " "))[1:]
        for block in re.findall(r"^fairseq-train data-bin .*?[^\\]$", text, re.DOTALL | re.MULTILINE)
        if "23000" in block
    )
    paths = ("data", "user_dir", "save_dir")
    ours, theirs = (vars(parse(words)) for words in (dry_run("--gpus", "8"), shown))
    different = {name for name in ours if ours[name] != theirs.get(name)} - {*paths, "no_epoch_checkpoints"}
    assert {name for name in different if not name.startswith("distributed")} == set()


def test_fairseq_starts_the_processes_of_each_machine(monkeypatch):
    """Both generations, on a machine that says it has 8 GPUs, whatever Slurm and torchrun left in the environment."""
    slurm = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NNODES": "2", "SLURM_NTASKS_PER_NODE": "1", "SLURM_NODEID": "1"}
    torchrun = {"MASTER_ADDR": "x", "MASTER_PORT": "1", "WORLD_SIZE": "9", "RANK": "5"}
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    started, alone = [], []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.multiprocessing, "spawn", lambda **kwargs: started.append(kwargs))
    # a single process, where fairseq would take all 8
    cfg = convert_namespace_to_omegaconf(parse(dry_run("--gpus", "1")))
    distributed_utils.call_main(cfg, alone.append)
    assert not started and alone[0].distributed_training.distributed_world_size == 1
    for name, value in torchrun.items():
        monkeypatch.setenv(name, value)
    cfg = convert_namespace_to_omegaconf(parse(dry_run("--gpus", "8", "--nodes", "2", "--master", "n1:2000")))
    distributed_utils.call_main(cfg, None)
    call, found = started[0], started[0]["args"][1].distributed_training
    assert (call["nprocs"], call["args"][2]["start_rank"]) == (8, 8)
    assert (found.distributed_world_size, found.distributed_init_method) == (16, "tcp://n1:2000")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("", "--gpus must say how many GPUs"),
        ("--gpus 3", "GPUs x rows must divide the batch of 4096, got 3 GPUs x 64 rows"),
        ("--gpus 0", "--gpus must be a whole number of at least 1, got '0'"),
        ("--gpus", "--gpus needs a value"),
        ("--gpus 8 --lr 1", "unknown option --lr; options of fairseq-train stand behind --"),
        ("--gpus 8 --nodes 2 --node-rank 0", "--nodes 2 needs --master HOST:PORT"),
        ("--gpus 8 --nodes 2 --master h:1", "--nodes 2 needs --node-rank"),
        ("--gpus 8 --nodes 2 --master h:1 --node-rank 2", "--node-rank must be below --nodes, 2, got 2"),
        ("--gpus 8 --master h", "--master must be HOST:PORT, got 'h'"),
        ("--gpus 2 --cpu", "--cpu is one process: --gpus and --nodes must be 1, got 2 and 1"),
        ("--gpus 8", "data-bin: no dict.txt in it: DATA is what fairseq-preprocess wrote"),
    ],
)
def test_bad_options_get_one_line(arguments, message, tmp_path):
    done = run("data-bin", "out", *arguments.split(), cwd=tmp_path, env={"SLURM_NODEID": ""})
    assert done.returncode == 1 and done.stdout.startswith("run.sh: ") and message in done.stdout
    assert len(done.stdout.splitlines()) == 1 and not list(tmp_path.iterdir())


def test_gpus_and_what_is_visible_agree():
    machine = "--gpus 2 --nodes 2 --node-rank 0 --master h:1 --dry-run data-bin out".split()
    assert "env CUDA_VISIBLE_DEVICES=2\\,3 " in run(*machine, env={"CUDA_VISIBLE_DEVICES": "2,3"}, check=True).stdout
    done = run(*machine, env={"CUDA_VISIBLE_DEVICES": "0,1,2"})
    assert "--gpus must be the number of GPUs in CUDA_VISIBLE_DEVICES, 0,1,2, got 2" in done.stdout


@pytest.mark.parametrize("visible, count", [("3", 1), ("", 2)])
def test_gpus_that_are_not_there_are_refused(tmp_path, visible, count):
    """Before fairseq waits for them."""
    (tmp_path / "dict.txt").touch()
    make_tool(tmp_path, "nvidia-smi", "printf 'GPU 0: A\\nGPU 1: B\\n'\n")
    make_tool(tmp_path, "fairseq-train", "echo started\n")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": visible}
    done = run("--gpus", 4, tmp_path, tmp_path / "out", env=env)
    assert done.returncode == 1
    assert f"--gpus must be at most the number of GPUs that are visible here, {count}, got 4" in done.stdout
    assert run("--gpus", count, tmp_path, tmp_path / "out", env=env, check=True).stdout == "started\n"


def make_tool(folder, name, text):
    (folder / name).write_text("#!/usr/bin/env bash\n" + text)
    (folder / name).chmod(stat.S_IRWXU)


def test_slurm_starts_one_task_a_machine(tmp_path):
    """With a scontrol and an srun that do here what Slurm's do: name the machines, start the command on each."""
    make_tool(tmp_path, "scontrol", "printf 'node7\\nnode9\\n'\n")
    make_tool(
        tmp_path,
        "srun",
        'while [[ $1 == -* ]]; do echo "srun $1" >&2; shift; done\nfor i in 0 1; do SLURM_NODEID=$i "$@" || exit 1; done\n',
    )
    job = {"SLURM_JOB_NODELIST": "node[7,9]", "SLURM_NNODES": "2", "SLURM_JOB_ID": "40017", "SLURM_GPUS_ON_NODE": "4"}
    env = {**job, "SLURM_SUBMIT_DIR": str(harness.ROOT), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = run("data-bin", "out", "--dry-run", "--", "--seed", "2", script="slurm.sbatch", env=env, check=True)
    assert "srun --ntasks-per-node=1" in done.stdout
    commands = [shlex.split(line) for line in done.stdout.splitlines() if "fairseq-train" in line]
    ranks = []
    for words in commands:
        args = parse(words[words.index("fairseq-train") + 1 :])
        assert args.batch_size * args.update_freq[0] * args.distributed_world_size == 4096 and args.seed == 2
        assert args.distributed_init_method == "tcp://node7:20017"
        ranks.append(args.distributed_rank)
    assert ranks == [0, 4]
    done = run("data-bin", "out", script="slurm.sbatch", env={**env, "SLURM_SUBMIT_DIR": str(tmp_path)})
    assert done.returncode == 1 and "call sbatch in the checkout's top folder" in done.stdout


def test_trains_and_goes_on(data_bin, tmp_path):
    """At toy size: what the script starts trains, and the same command goes on where it ended."""
    make_tool(tmp_path, "fairseq-train", 'for word in "$@"; do echo "$word"; done\n')
    for updates, expected in ((2, [1, 2]), (3, [3])):
        command = [data_bin, tmp_path / "out", "--cpu", "--", *TOY, updates]
        words = run(*command, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, check=True).stdout.splitlines()
        assert words == shlex.split(run(*command[:2], "--dry-run", *command[2:]).stdout)[1:]
        # as these tests run fairseq, which is cheaper
        log = harness.Log(harness.run([sys.executable, "-m", "fairseq_cli.train", *words], check=True))
        assert list(log.losses()) == expected and "done training" in log.text
