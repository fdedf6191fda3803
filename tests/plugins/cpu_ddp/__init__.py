"""A ``--user-dir`` like ``rank_digest``, with which ranks on CPUs do what only ranks on GPUs could.

- ``--ddp-backend pytorch_ddp``: fairseq hands torch's ``DistributedDataParallel`` the number of a GPU, which it refuses for
  a module on the CPU; without one it works, with gloo.
- ``--fp16``: the flat fp32 copies are kept by the GPU that holds the parameters, and parameters on the CPU say None.
- With ``MASKPLUGINS_TEST_GPUS=N`` fairseq starts N processes by itself, as on a machine with as many GPUs.
"""

import os
import sys

import torch
from fairseq.models import distributed_fairseq_model

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import rank_digest  # noqa: E402,F401

wrap = distributed_fairseq_model.DistributedDataParallel


def wrap_on_cpu(*args, device_ids=None, output_device=None, **kwargs):
    return wrap(*args, **kwargs)


distributed_fairseq_model.DistributedDataParallel = wrap_on_cpu
torch.cuda.current_device = lambda: None
if "MASKPLUGINS_TEST_GPUS" in os.environ:
    torch.cuda.device_count = lambda: int(os.environ["MASKPLUGINS_TEST_GPUS"])
