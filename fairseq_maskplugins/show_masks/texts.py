"""Text of dictionary entries, fit to be printed (no fairseq here)."""

from typing import List, Sequence

from ..vocabulary import Vocabulary


def printable(text: str) -> str:
    """Escape what a terminal would act on or not show."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def entry_texts(symbols: Sequence[str], vocabulary: Vocabulary) -> List[str]:
    r"""Texts of all entries: pieces as they join to words where ``--bpe`` tells (a space before each word), else
    symbols with a space before each. Bytes that are part of a character are written ``\xe9``.

    *Shape:* ``V`` symbols to ``V`` texts.
    """
    texts = [f" {printable(symbol)}" for symbol in symbols]
    if vocabulary.find_pieces is not None and vocabulary.find_word_begins is not None:
        begins = vocabulary.find_word_begins()
        for i, piece in enumerate(vocabulary.find_pieces()):
            if vocabulary.maskable[i]:
                text = printable(piece.decode("utf-8", errors="backslashreplace"))
                texts[i] = f" {text}" if begins[i] else text
    return texts
