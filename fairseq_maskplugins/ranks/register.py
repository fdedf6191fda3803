"""What fairseq does with several processes, in one line where it goes wrong. Importing this puts both in place."""

import functools
from typing import Any

import torch
from fairseq.distributed import utils
from fairseq.file_io import PathManager
from fairseq.trainer import Trainer
from torch.multiprocessing.spawn import ProcessRaisedException

from ..errors import UsageError


def explain_spawned() -> None:
    """One line, not a traceback, for bad input on several GPUs: fairseq starts a process for each, and torch passes on the
    first one's traceback as text."""
    call_main = utils.call_main
    if getattr(call_main, "explains", False):
        return

    @functools.wraps(call_main)
    def call_main_explained(*args: Any, **kwargs: Any) -> Any:
        _require_processes(kwargs["cfg"] if "cfg" in kwargs else args[0])
        try:
            return call_main(*args, **kwargs)
        except ProcessRaisedException as error:
            last = str(error).rstrip().rsplit("\n", 1)[-1]
            if "UsageError: " not in last:
                raise
            raise UsageError(last.split("UsageError: ", 1)[1]) from None

    call_main_explained.explains = True
    utils.call_main = call_main_explained


def _require_processes(cfg: Any) -> None:
    """fairseq starts as many processes as there are GPUs: without one, none, and ends as if all went well."""
    options = cfg.distributed_training
    if options.distributed_world_size == 1 or torch.cuda.device_count() or options.tpu:
        return
    if options.distributed_init_method is None:
        try:
            utils.infer_init_method(options)
        except AssertionError:  # it counts devices
            pass
        else:
            if options.distributed_init_method is None:
                return
    if options.distributed_no_spawn:
        return
    raise UsageError(
        f"--distributed-world-size {options.distributed_world_size} needs as many GPUs, and there is none; on CPUs start each "
        "rank by itself, with --distributed-no-spawn --distributed-rank RANK --distributed-backend gloo and "
        "--distributed-init-method tcp://HOST:PORT"
    )


def require_on_all_ranks() -> None:
    """Stop where some ranks find a checkpoint and others, on another machine, don't: the first rank would read it and send
    it to others that are not waiting for it, for ever."""
    load = Trainer.load_checkpoint
    if getattr(load, "asks_all_ranks", False):
        return

    @functools.wraps(load)
    def load_checkpoint(self: Any, filename: str, *args: Any, **kwargs: Any) -> Any:
        world = self.data_parallel_world_size
        if world > 1 and not self.tpu:
            found = torch.tensor([float(PathManager.isfile(filename))], device=self.device)
            utils.all_reduce(found, group=self.data_parallel_process_group)
            if 0 < int(found) < world:
                raise UsageError(
                    f"{filename}: {int(found)} of {world} ranks find this checkpoint: give a --save-dir and a --restore-file "
                    "that all machines share"
                )
        return load(self, filename, *args, **kwargs)

    load_checkpoint.asks_all_ranks = True
    Trainer.load_checkpoint = load_checkpoint


explain_spawned()
require_on_all_ranks()
