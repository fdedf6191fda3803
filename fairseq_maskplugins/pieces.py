"""The bytes of text that an entry of a dictionary stands for, by tokenizer (no fairseq here)."""

import re
from functools import lru_cache
from typing import Any, Callable, Dict, List

import numpy as np

from .errors import UsageError

_BYTE_PIECE = re.compile("<0x([0-9A-Fa-f]{2})>")


@lru_cache(maxsize=1)
def byte_alphabet() -> Dict[str, int]:
    """Character to byte of byte-level BPE: printable Latin-1 stands for itself, other bytes for characters from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{chr(b): b for b in printable}, **{chr(0x100 + i): b for i, b in enumerate(others)}}


def _byte_level(text: str) -> bytes:
    alphabet = byte_alphabet()
    return bytes(alphabet[character] for character in text)


def _sentencepiece(encoder: Any, symbol: str) -> bytes:
    byte = _BYTE_PIECE.fullmatch(symbol)
    return bytes([int(byte.group(1), 16)]) if byte else symbol.lstrip("\u2581").encode("utf-8")


READERS: Dict[str, Callable[[Any, str], bytes]] = {
    "sentencepiece": _sentencepiece,
    "gpt2": lambda encoder, symbol: _byte_level(encoder.bpe.decoder[int(symbol)]),
    "hf_byte_bpe": lambda encoder, symbol: _byte_level(encoder.bpe.id_to_token(int(symbol))),
    "bert": lambda encoder, symbol: (symbol[2:] if symbol.startswith("##") else symbol).encode("utf-8"),
}


def read_piece(name: str, encoder: Any, symbol: str) -> bytes:
    """Bytes of a piece, without the mark of a word's beginning; for byte-level BPE maybe a part of a character. A tokenizer
    that is not in the table decodes the symbol."""
    if name in READERS:
        return READERS[name](encoder, symbol).lstrip(b" ")
    return encoder.decode(symbol).strip().encode("utf-8")


class TransformersPieces:
    """The entries of a tokenizer of ``transformers``, whose scheme is told by the mark that most entries bear.

    Args:
        entries: texts of all ids.
        special: bool ``[V]``, special tokens and ids without an entry.
    """

    def __init__(self, entries: List[str], special: np.ndarray):
        self.entries, self.special = entries, special
        counts = {mark: sum(str(entry).startswith(mark) for entry in entries) for mark in ("##", "\u0120", "\u2581")}
        self.mark = max(counts, key=counts.__getitem__)
        if not counts[self.mark]:
            self.mark = ""

    def find_word_begins(self) -> np.ndarray:
        """Which entries begin a word; special tokens do. *Shape:* bool ``[V]``."""
        if not self.mark:
            raise UsageError("the tokenizer's entries do not say where words begin: none has a mark such as ## or \u2581")
        marked = np.array([str(entry).startswith(self.mark) for entry in self.entries])
        return (~marked if self.mark == "##" else marked) | self.special

    def find_pieces(self) -> List[bytes]:
        """The entries' bytes of text, without marks; empty for special tokens."""
        return [b"" if special else self._read(entry) for entry, special in zip(self.entries, self.special)]

    def _read(self, entry: str) -> bytes:
        if self.mark == "\u0120":
            alphabet = byte_alphabet()
            # tokens that were added later are plain text
            known = all(character in alphabet for character in entry)
            return (_byte_level(entry) if known else entry.encode("utf-8")).lstrip(b" ")
        if self.mark == "\u2581":
            return _sentencepiece(None, entry)
        return entry[2:].encode("utf-8") if self.mark and entry.startswith(self.mark) else entry.encode("utf-8")
