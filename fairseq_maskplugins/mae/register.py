"""Lets any RoBERTa load a checkpoint of ``mae_roberta``: the decoder is left out, and a line in the log says so."""

import logging
from typing import Any, Dict

import torch
from fairseq.models.roberta import RobertaModel

logger = logging.getLogger(__name__)

# RoBERTa renames whatever begins with "decoder", so the name of our decoder does not
DECODER = "mae_decoder"


def _extend(stock: Any) -> Any:
    def upgrade_state_dict_named(self: Any, state_dict: Dict[str, torch.Tensor], name: str) -> None:
        prefix = (name + "." if name else "") + DECODER + "."
        found = [key for key in state_dict if key.startswith(prefix)]
        if found and getattr(self, DECODER, None) is None:
            logger.info(f"left out the decoder of the MAE checkpoint, {len(found)} tensors: this model has none")
            for key in found:
                del state_dict[key]
        stock(self, state_dict, name)

    return upgrade_state_dict_named


RobertaModel.upgrade_state_dict_named = _extend(RobertaModel.upgrade_state_dict_named)
