"""A ``--user-dir`` that imports ours and prints a digest of every rank's weights when a checkpoint is due.

fairseq writes checkpoints on rank 0 only, so weights of other ranks can't be compared through files.
"""

import hashlib
import os
import sys

from fairseq import checkpoint_utils

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", ".."))
import harness  # noqa: E402

import fairseq_maskplugins  # noqa: E402,F401

save = checkpoint_utils.save_checkpoint


def save_checkpoint(cfg, trainer, epoch_itr, val_loss):
    digest = hashlib.sha256()
    for part in (trainer.model, trainer.criterion):
        for name, tensor in sorted(harness.trained(part.state_dict()).items()):
            digest.update(name.replace("module.", "").encode() + tensor.detach().cpu().numpy().tobytes())
    # fairseq silences the loggers of every rank but the first
    print(f"weights@{trainer.get_num_updates()}={digest.hexdigest()}", flush=True)
    return save(cfg, trainer, epoch_itr, val_loss)


checkpoint_utils.save_checkpoint = save_checkpoint
