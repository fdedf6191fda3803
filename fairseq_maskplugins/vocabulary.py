"""What masking needs to know of a dictionary, as plain arrays (no fairseq here)."""

import re
from dataclasses import dataclass
from typing import Any, Callable, List, Optional

import numpy as np

from .errors import UsageError
from .pieces import TransformersPieces

_UNUSED = re.compile(r"\[unused\d+\]")


def is_padding_word(symbol: str) -> bool:
    """Whether fairseq added an entry to a dictionary to make its size a round number: no text holds it."""
    return re.fullmatch(r"madeupword\d{4,}", symbol) is not None


@dataclass
class Vocabulary:
    """Facts about the ``V`` entries of a dictionary.

    Attributes:
        pad, bos, eos, mask: ids of the special symbols.
        maskable: bool ``[V]``; False for specials and ``<mask>``, which are in no unit: never masked, never targets.
        replacements: int64 ``[R]``, the ids that a random replacement may be: no specials, no padding words, no ``<mask>``.
        cumulative: float64 ``[R]``, cumulative probabilities of ``replacements`` (the last is 1), or None for uniform.
        find_word_begins: gives the bool ``[V]`` array of the entries that begin a word. It is called when a masker asks
            for it, and raises :class:`~fairseq_maskplugins.errors.UsageError` where nothing says where words begin.
        find_pieces: gives the bytes of text of the ``V`` entries, without the space before a word; empty for specials.
            Byte-level BPE has entries that are parts of a UTF-8 sequence.
    """

    pad: int
    bos: int
    eos: int
    mask: int
    maskable: np.ndarray
    replacements: np.ndarray
    cumulative: Optional[np.ndarray] = None
    find_word_begins: Optional[Callable[[], np.ndarray]] = None
    find_pieces: Optional[Callable[[], List[bytes]]] = None

    @classmethod
    def from_transformers(cls, tokenizer: Any) -> "Vocabulary":
        """The facts about a tokenizer of ``transformers``: WordPiece (``##ing``), byte-level BPE (``Ġthe``), or
        sentencepiece (``▁the``).

        Special tokens are never corrupted; ``[unused7]`` and the like are no random replacements.

        Raises:
            UsageError: the tokenizer has no mask or padding token, or (when a masker asks) does not mark words.
        """
        for name in ("mask", "pad"):
            if getattr(tokenizer, f"{name}_token_id", None) is None:
                raise UsageError(f"the tokenizer must have a {name} token, {type(tokenizer).__name__} has none")
        entries = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        special = np.array([entry is None for entry in entries])
        special[tokenizer.all_special_ids] = True
        unused = np.array([is_padding_word(str(entry)) or bool(_UNUSED.fullmatch(str(entry))) for entry in entries])
        pieces = TransformersPieces(entries, special)
        first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
        return cls(
            pad=tokenizer.pad_token_id,
            bos=tokenizer.bos_token_id if first is None else first,
            eos=tokenizer.eos_token_id if last is None else last,
            mask=tokenizer.mask_token_id,
            maskable=~special,
            replacements=np.flatnonzero(~special & ~unused),
            find_word_begins=pieces.find_word_begins,
            find_pieces=pieces.find_pieces,
        )

    def __len__(self) -> int:
        return len(self.maskable)

    def draw_replacements(self, u: np.ndarray) -> np.ndarray:
        """Turn uniform numbers in [0, 1) into replacement ids. *Shape:* ``[N]`` to ``[N]`` int64."""
        if self.cumulative is None:
            # the grid of u is 2^-53, so the product of u < 1 and R < 2^32 rounds to below R
            index = (u * len(self.replacements)).astype(np.int64)
        else:
            index = np.searchsorted(self.cumulative, u, side="right")
        return self.replacements[np.minimum(index, len(self.replacements) - 1)]
