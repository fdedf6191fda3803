"""Results of a training: its log as numbers, and the weights of its checkpoints."""

import json
import re


class Log:
    """The finished process and what it logged: ``train`` and ``valid`` are lists of dicts of numbers."""

    def __init__(self, done):
        self.returncode, self.text = done.returncode, done.stdout
        self.train, self.valid = [], []
        self.digests = dict(re.findall(r"weights@(\d+)=(\w+)", self.text))  # of user dir plugins/rank_digest
        for line in done.stdout.splitlines():
            for marker, found in (("| train_inner | ", self.train), ("| valid | ", self.valid)):
                if marker in line:
                    found.append(_numbers(line.split(marker, 1)[1]))

    def losses(self):
        """``{update: loss}`` of the training steps."""
        return {int(step["num_updates"]): step["loss"] for step in self.train}


def _numbers(text):
    def number(value):
        try:
            return float(value)
        except (TypeError, ValueError):
            return value

    return {key: number(value) for key, value in json.loads(text).items()}


def trained(tensors):
    """A dict of tensors by name without fairseq's copies for inference."""
    from fairseq_maskplugins.compat import is_inference_copy

    return {name: tensor for name, tensor in tensors.items() if not is_inference_copy(name)}


def load_weights(path):
    """Model tensors of a checkpoint, by name."""
    import argparse

    import torch

    if hasattr(torch.serialization, "add_safe_globals"):
        torch.serialization.add_safe_globals([argparse.Namespace])
    return trained(torch.load(path, map_location="cpu")["model"])


def assert_same_weights(one, other):
    """Bit-equal model tensors in two checkpoint files."""
    import torch

    a, b = load_weights(one), load_weights(other)
    assert a.keys() == b.keys()
    different = [name for name in a if not torch.equal(a[name], b[name])]
    assert not different, f"{len(different)} of {len(a)} tensors differ: {different[:5]}"
