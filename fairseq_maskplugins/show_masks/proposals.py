"""What the proposer of a MAP-Net checkpoint would mask, row by row, for ``maskplugins show-masks --checkpoint``."""

from typing import Any, Iterable, List

import torch

from ..decoupled_mlm.loading import Loaded, load_masked_lm, require_proposer
from ..errors import UsageError
from .shade import Word, join_words


def load_proposer(path: str, data: str) -> Loaded:
    """Load a checkpoint of ``--criterion mapnet``; another one, or one that can't be read, is refused."""
    loaded = load_masked_lm(path, data)
    require_proposer(loaded, path, "--checkpoint")
    return loaded


def check_dictionary(loaded: Loaded, task: Any, path: str, data: str) -> None:
    if loaded.task.dictionary.symbols != task.dictionary.symbols:
        raise UsageError(f"--checkpoint {path}: its dictionary is not that of {data}")


def propose_rows(loaded: Loaded, task: Any, dataset: Any, indices: Iterable[int], texts: List[str]) -> List[List[Word]]:
    """Words of the sequences ``indices`` with their weights under the proposer, relative to uniform masks."""
    rows = []
    for index in indices:
        tokens = dataset.collater([dataset[int(index)]])["net_input"]["src_tokens"]
        maskable = torch.from_numpy(task.planner.vocabulary.maskable)[tokens]
        with torch.no_grad():
            q = loaded.criterion.propose(loaded.model, tokens, maskable).exp()
        rows.append(join_words([texts[t] for t in tokens[0]], q[0].numpy(), maskable[0].numpy()))
    return rows
