"""How much of a text a list covers (no fairseq)."""

from typing import Dict, Iterable, List, NamedTuple, Tuple

import numpy as np

from ..errors import UsageError
from .count import hash_grams, walk_grams, word_key
from .words import WordSplitter

NOWHERE = np.iinfo(np.int64).max


class PhraseTable(NamedTuple):
    """Phrases by number of words: hashes (sorted, uint64 ``[P]``) and slots (int64 ``[P]``)."""

    by_length: Dict[int, Tuple[np.ndarray, np.ndarray]]

    @staticmethod
    def build(phrases: Iterable[Tuple[int, str]]) -> "PhraseTable":
        """From pairs of slot (any number >= 0; a phrase's place in a list) and phrase, words separated by blanks."""
        keys: Dict[str, int] = {}
        found: Dict[int, Tuple[List[int], List[List[int]]]] = {}
        for slot, phrase in phrases:
            words = phrase.split(" ")
            slots, rows = found.setdefault(len(words), ([], []))
            slots.append(slot)
            rows.append([keys[word] if word in keys else keys.setdefault(word, word_key(word)) for word in words])
        table = {}
        for n, (slots, rows) in found.items():
            hashes = hash_grams(list(np.ascontiguousarray(np.array(rows, dtype=np.int64).T)))
            order = np.argsort(hashes, kind="stable")
            table[n] = hashes[order], np.array(slots, dtype=np.int64)[order]
        return PhraseTable(table)


def cover_batch(text: str, splitter: WordSplitter, table: PhraseTable) -> Tuple[np.ndarray, np.ndarray, int]:
    """Find the words of a text that are inside a phrase. A word counts once, however many phrases it is in.

    Returns:
        the smallest slots of phrases that words are inside of, int64 ``[S]``, each once; how many words have it as
        their smallest, int64 ``[S]``; and the number of words in the text.
    """
    words, ids, segments = splitter.split(text)
    row = np.array([word_key(word) for word in words], dtype=np.int64)[ids]
    best = np.full(len(row), NOWHERE)
    for n, begins, hashes in walk_grams(row, segments):
        if n not in table.by_length:
            continue
        known, slots = table.by_length[n]
        at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        hit = known[at] == hashes
        begins, slot = begins[hit], slots[at[hit]]
        for offset in range(n):
            best[begins + offset] = np.minimum(best[begins + offset], slot)
    found, counts = np.unique(best[best != NOWHERE], return_counts=True)
    return found, counts, len(row)


def smallest_size(covered: np.ndarray, words: int, coverage: float) -> int:
    """The smallest size of a list that covers a fraction ``coverage`` in (0, 1] of ``words`` words; refused if all candidates
    cover less. ``covered[s]`` words are inside the phrase in slot s and inside none of a smaller slot."""
    total = np.cumsum(covered)
    # the share is compared as a number of words; the tolerance guards 0.1 * 30 against being 3.0000000000000004
    size = int(np.searchsorted(total, coverage * words * (1 - 1e-12))) + 1
    if size > len(total):
        reached = total[-1] / words if len(total) else 0.0
        raise UsageError(
            f"--coverage {coverage:g} can't be reached: all candidates together cover {reached:.4f} of the words; "
            "lower it, or lower --min-count"
        )
    return size
