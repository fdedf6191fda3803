"""Hashes of words and phrases that can be put together from the hashes of pieces (no fairseq here).

A word's hash is a polynomial over its UTF-8 bytes, modulo 2^64: ``sum of V[byte_i] * BASE^i``. So a word cut into pieces by any
tokenizer has the hash ``sum of h(piece_j) * BASE^(bytes before piece j)``, and text that exists only as token ids can be looked
up in a list of words. ``V`` maps bytes to fixed random words, and ``BASE`` is 5 modulo 8, which keeps ``BASE^i - 1`` from
having more powers of two than it must. A phrase's hash is a polynomial over its words' hashes, each mixed first.

Case: both sides are case-folded, which works character by character (unlike lower-casing, where a final sigma differs),
so folding pieces folds the word. A piece may end inside a character (byte-level BPE): its whole characters are folded, the
other bytes stay as they are; an upper-case letter outside ASCII that the tokenizer cuts in two is therefore not folded.

Punctuation: what stands at a word's edge and is nothing but punctuation or symbols (Unicode categories P and S) is a
word of its own; inside a word it stays (``don't``, ``state-of-the-art``). The same rule cuts the list and the text.
"""

import re
import unicodedata
from functools import lru_cache
from typing import List, Sequence, Tuple

import numpy as np

from ..rng import GOLDEN, mix

BASE = 0xD1342543DE82EF95
WORD_BASE = np.uint64(0xAF251AF3B0F025B5)
VALUES = mix((np.arange(256, dtype=np.uint64) + np.uint64(1)) * GOLDEN)
_FULL = (1 << 64) - 1


def powers(count: int) -> np.ndarray:
    """``BASE^0 .. BASE^(count - 1)`` modulo 2^64. *Shape:* ``uint64 [count]``."""
    with np.errstate(over="ignore"):
        factors = np.full(max(count, 1), BASE, dtype=np.uint64)
        factors[0] = 1
        return np.multiply.accumulate(factors)[:count]


def hash_bytes(data: bytes) -> int:
    """The polynomial hash of one piece or word."""
    value, power = 0, 1
    for byte in data:
        value = (value + int(VALUES[byte]) * power) & _FULL
        power = (power * BASE) & _FULL
    return value


def mix_word(polynomial: np.ndarray) -> np.ndarray:
    """From polynomial hashes to words' hashes, random in every bit."""
    return mix(polynomial + GOLDEN)


def extend(phrase: np.ndarray, word: np.ndarray) -> np.ndarray:
    """Hashes of phrases that go on with one more word; a phrase of one word has the word's hash."""
    return phrase * WORD_BASE + word


@lru_cache(maxsize=1 << 16)
def is_punctuation(character: str) -> bool:
    """Unicode categories P (punctuation) and S (symbols)."""
    return unicodedata.category(character)[0] in "PS"


def fold(data: bytes, match_case: bool) -> Tuple[bytes, bool]:
    """A piece's bytes, case-folded unless ``match_case``, and whether it is punctuation only (never where it is empty)."""
    text = data.decode("utf-8", errors="surrogateescape")
    only = len(text) > 0 and all(map(is_punctuation, text))
    return (text if match_case else text.casefold()).encode("utf-8", errors="surrogateescape"), only


def is_partial(data: bytes) -> bool:
    """Whether a piece has a part of a character, as byte-level tokenizers' pieces may."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False


def cut_punctuation(text: str) -> str:
    """Put spaces between a word and the punctuation at its edges, for all words of a text (words stand between spaces).

    A word of punctuation alone stays whole.
    """
    marks = "".join(re.escape(c) for c in sorted(set(text)) if is_punctuation(c))
    if not marks:
        return text
    text = re.sub(rf"(?<!\S)([{marks}]+)(?=[^{marks}\s])", r"\1 ", text)
    return re.sub(rf"(?<=[^{marks}\s])([{marks}]+)(?!\S)", r" \1", text)


def hash_phrases(phrases: Sequence[str], match_case: bool) -> Tuple[np.ndarray, np.ndarray]:
    """Hash ``N`` phrases: ``uint64 [N]``, and ``int64 [N]`` numbers of words, counted after punctuation was set apart."""
    text = "\n".join(phrases)
    lines = cut_punctuation(text if match_case else text.casefold()).split("\n")
    words = [line.split() for line in lines]
    counts = np.fromiter(map(len, words), dtype=np.int64, count=len(words))
    hashes = _hash_words([word for line in words for word in line])
    first = np.cumsum(counts) - counts
    found = hashes[first]
    for number in range(1, int(counts.max())):
        longer = np.flatnonzero(counts > number)
        found[longer] = extend(found[longer], hashes[first[longer] + number])
    return found, counts


def _hash_words(words: List[str]) -> np.ndarray:
    encoded = [word.encode("utf-8") for word in words]
    sizes = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    data = np.frombuffer(b"".join(encoded), dtype=np.uint8)
    first = np.cumsum(sizes) - sizes
    offset = np.arange(len(data)) - np.repeat(first, sizes)
    return mix_word(np.add.reduceat(VALUES[data] * powers(int(sizes.max()))[offset], first))
