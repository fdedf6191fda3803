"""What the model benchmarks share: building a model without a task's data, and timing steps side by side."""

import argparse
import logging
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
logging.disable(logging.WARNING)

import torch  # noqa: E402
from fairseq.data import Dictionary  # noqa: E402
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY  # noqa: E402

import fairseq_maskplugins  # noqa: E402,F401


class Task:
    """As much of a masked-LM task as building a model takes."""

    def __init__(self, words):
        self.source_dictionary = Dictionary()
        for word in range(words - 5):
            self.source_dictionary.add_symbol(f"w{word}")
        self.mask_idx = self.source_dictionary.add_symbol("<mask>")


def build(arch, task, device, **options):
    args = argparse.Namespace(arch=arch, **{**dict(seed=1, max_positions=512), **options})
    ARCH_CONFIG_REGISTRY[arch](args)
    torch.manual_seed(1)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task).to(device).train()


def make_rows(task, rows, length, device):
    """Full rows: ``<s>``, random words, ``</s>``."""
    dictionary = task.source_dictionary
    tokens = torch.randint(4, task.mask_idx, (rows, length), generator=torch.Generator().manual_seed(2))
    tokens[:, 0], tokens[:, -1] = dictionary.bos(), dictionary.eos()
    return tokens.to(device)


def time_side_by_side(steps, rounds, device):
    """Seconds of each step in each round; a round runs each once, so a busy machine slows all of them alike.

    On one CPU thread it is the processor's time that counts, which others on the machine disturb less than the wall's.
    """
    clock = _clock(device)
    times = {name: [] for name in steps}
    for number in range(rounds + 1):  # the first round warms up
        for name, step in steps.items():
            if device.type == "cuda":
                torch.cuda.synchronize()
            start = clock()
            step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if number:
                times[name].append(clock() - start)
    return times


def _clock(device):
    return time.process_time if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter


def ratio(times, name, other):
    """Median over the rounds of one step's time divided by another's of the same round."""
    return statistics.median(a / b for a, b in zip(times[name], times[other]))


def median(values):
    return statistics.median(values)


def describe(device):
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} thread(s)"
    clock = "processor" if _clock(device) is time.process_time else "wall"
    return f"{where}, torch {torch.__version__}, {clock} time"
