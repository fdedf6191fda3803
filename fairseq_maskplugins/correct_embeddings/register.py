"""Lets RoBERTas with tied weights load corrected checkpoints, whose output projection is untied."""

import logging
from typing import Any, Dict

import torch
from fairseq.models.roberta import RobertaModel

logger = logging.getLogger(__name__)


def keep_embedding(state: Dict[str, torch.Tensor], prefix: str) -> None:
    """Make the output projection of a state dictionary the embedding where the two differ.

    In a tied model both names are one tensor. The output projection is loaded last, so it would overwrite the embedding
    without a word, and with it the correction.
    """
    name, head = prefix + "encoder.sentence_encoder.embed_tokens.weight", prefix + "encoder.lm_head.weight"
    if name not in state or head not in state or torch.equal(state[name], state[head]):
        return
    logger.warning(
        "the checkpoint's output projection is not its embedding, and this model's is: the embedding is loaded, the "
        "projection is not; --untie-weights-roberta loads both"
    )
    state[head] = state[name]


def _extend(stock: Any) -> Any:
    def upgrade_state_dict_named(self: Any, state_dict: Dict[str, torch.Tensor], name: str) -> None:
        stock(self, state_dict, name)
        if not getattr(self.args, "untie_weights_roberta", False):
            keep_embedding(state_dict, name + "." if name else "")

    return upgrade_state_dict_named


RobertaModel.upgrade_state_dict_named = _extend(RobertaModel.upgrade_state_dict_named)
