"""What the tokenizers of a folder share: the files, special tokens, and rows for pieces that the dictionary lacks.

Row ``i`` of the model is entry ``i`` of fairseq's dictionary, so ids agree as they stand. A tokenizer may have pieces that
never occurred in the training text: fairseq's dictionary lacks them, and reads them as ``<unk>``. In ``tokenizers`` every
piece that can come out needs an id of its own, so these follow after the dictionary (*aliases* of ``<unk>``).
"""

import json
from typing import Any, Dict, List, NamedTuple, Optional

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"


class Built(NamedTuple):
    """A tokenizer as files.

    Attributes:
        files: content by name.
        aliases: pieces behind the dictionary's, which are ``<unk>`` to the model.
        unreachable: entries of the dictionary that no text leads to any more; their rows stay.
    """

    files: Dict[str, bytes]
    aliases: List[str]
    unreachable: List[str]


def add_specials(tokenizer: Any, symbols: List[str], trim: bool = False) -> None:
    """Special tokens, and ``<s> A </s>`` or ``<s> A </s></s> B </s>`` around texts."""
    from tokenizers import AddedToken
    from tokenizers.processors import RobertaProcessing

    tokens = [AddedToken(symbol, special=True, normalized=False) for symbol in SPECIALS]
    # the space before a mask belongs to the word that fills it
    tokenizer.add_special_tokens([*tokens, AddedToken(MASK, special=True, normalized=False, lstrip=True)])
    ends = (("</s>", symbols.index("</s>")), ("<s>", symbols.index("<s>")))
    tokenizer.post_processor = RobertaProcessing(*ends, trim_offsets=trim, add_prefix_space=False)


def make_files(tokenizer: Any, name: str, longest: int, others: Optional[Dict[str, bytes]] = None) -> Dict[str, bytes]:
    """``tokenizer.json``, ``tokenizer_config.json`` and ``special_tokens_map.json`` for a class of ``transformers``."""
    names = {"bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>"}
    special: Dict[str, Any] = {f"{kind}_token": token for kind, token in names.items()}
    mask = {"content": MASK, "lstrip": True, "rstrip": False, "normalized": False, "single_word": False}
    config = {
        "tokenizer_class": name,
        "model_max_length": longest,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        **special,
        "mask_token": {"__type": "AddedToken", "special": True, **mask},
    }
    files = {
        "tokenizer.json": tokenizer.to_str(pretty=False).encode(),
        "tokenizer_config.json": to_json(config),
        "special_tokens_map.json": to_json({**special, "mask_token": mask}),
    }
    return {**files, **(others or {})}


def to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
