"""A list of phrases as a table of hashes, in a cache file that all processes of a machine share (no fairseq here).

The cache is stored beside the list (``LIST.pmi-cache``) or, where that folder is read-only, in the user's cache folder. It
records the digest of the list that it was made from, so that a changed list makes a new cache. It is written atomically;
ranks that start together may each write it.
"""

import hashlib
import json
import logging
import os
import unicodedata
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from ..errors import UsageError
from ..files import replacing
from .phrase_hash import hash_phrases
from .phrase_list import parse_phrases, read_bytes

logger = logging.getLogger(__name__)

_MAGIC = b"fairseq_maskplugins pmi-cache 3\n"
_HEADER = 4096  # bytes; arrays begin after it


class PhraseTable:
    """Which 64-bit hashes are in the list.

    Three arrays: the sorted hashes; a bitmap with a bit for each value of a hash's leading bits, which turns down
    nearly all hashes that are not in the list; and, for each value of fewer leading bits, where the sorted hashes that
    begin with it do. Hashes are random numbers, so that is a handful each, and a binary search is not needed.

    Attributes:
        lengths: numbers of words that phrases of the list have, increasing; phrases of one word are left out.
        count: number of different phrases of two words or more.
    """

    def __init__(self, info: Dict[str, Any], arrays: Tuple[np.ndarray, ...], path: Optional[str] = None):
        self.info, self.path = info, path
        self.lengths: List[int] = info["lengths"]
        self.count: int = info["count"]
        self.table, self.begins, self.bitmap = arrays
        self._bucket_shift = np.uint64(64 - info["bucket_bits"])
        self._bit_shift = np.uint64(64 - info["bucket_bits"] - 4)

    def __reduce__(self) -> Any:
        # a memory map would be pickled as a copy of the file
        if self.path is not None:
            return _reopen, (self.path, self.info)
        return PhraseTable, (self.info, (self.table, self.begins, self.bitmap))

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """Indices of the hashes that are in the list. *Shape:* ``uint64 [N]`` to ``int64 [M]``, increasing."""
        bit = (hashes >> self._bit_shift).view(np.int64)
        maybe = np.flatnonzero(self.bitmap[bit >> 3] & (1 << (bit & 7)).astype(np.uint8))
        left = hashes[maybe]
        bucket = (left >> self._bucket_shift).view(np.int64)
        place, end = self.begins[bucket].astype(np.int64), self.begins[bucket + 1].astype(np.int64)
        found = []
        while len(maybe):
            inside = place < end
            maybe, left, place, end = maybe[inside], left[inside], place[inside], end[inside]
            equal = self.table[place] == left
            found.append(maybe[equal])
            rest = ~equal
            maybe, left, place, end = maybe[rest], left[rest], place[rest] + 1, end[rest]
        return np.sort(np.concatenate(found)) if found else maybe


def build_table(hashes: np.ndarray, lengths: np.ndarray) -> PhraseTable:
    """A table in memory. *Shape:* hashes and numbers of words, ``uint64 [N]`` and ``int64 [N]``."""
    several = lengths > 1
    table = np.unique(hashes[several])
    bits = max(4, int(max(len(table), 1) - 1).bit_length())
    begins = np.zeros((1 << bits) + 1, dtype=np.uint32)
    np.cumsum(np.bincount((table >> np.uint64(64 - bits)).view(np.int64), minlength=1 << bits), out=begins[1:])
    bitmap = np.zeros(1 << (bits + 4), dtype=bool)
    bitmap[table >> np.uint64(64 - bits - 4)] = True
    info = {"count": len(table), "lengths": np.unique(lengths[several]).tolist(), "bucket_bits": bits}
    return PhraseTable(info, (table, begins, np.packbits(bitmap, bitorder="little")))


def build_from_list(path: str, raw: bytes, match_case: bool) -> PhraseTable:
    """Parse and hash a list.

    Raises:
        UsageError: a malformed line (see :func:`~.phrase_list.parse_phrases`).
    """
    parts = [hash_phrases(batch, match_case) for batch in parse_phrases(path, raw)]
    return build_table(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]))


def load_phrases(path: str, match_case: bool = False) -> PhraseTable:
    """Load the table of a list from its cache, or build and cache it."""
    raw = read_bytes(path)
    # case folding and punctuation come from the Unicode tables of the Python that runs
    key = f"{'case' if match_case else 'fold'} {unicodedata.unidata_version} {hashlib.sha256(raw).hexdigest()}"
    kind = "case" if match_case else "fold"
    places = [f"{path}.{kind}.pmi-cache", os.path.join(_user_folder(), f"{hashlib.sha256(key.encode()).hexdigest()}.pmi-cache")]
    for place in places:
        table = _open(place, key)
        if table is not None:
            return table
    built = build_from_list(path, raw, match_case)
    lengths = f" of {', '.join(map(str, built.lengths))} words" if built.count else ""
    logger.info(f"{path}: {built.count} phrases{lengths}")
    for place in places:
        if _write(place, built, key):
            return _open(place, key) or built
    logger.warning(f"{path}: neither its folder nor {_user_folder()} can be written, so there is no cache of it")
    return built


def _user_folder() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "fairseq_maskplugins")


def _layout(info: Dict[str, Any]) -> List[Tuple[Any, int]]:
    bits = info["bucket_bits"]
    return [(np.uint64, info["count"]), (np.uint32, (1 << bits) + 1), (np.uint8, 1 << (bits + 1))]


def _write(place: str, built: PhraseTable, key: str) -> bool:
    """Write a cache; False where that can't be done (a read-only folder, a full disk)."""
    try:
        os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
        arrays = [a.tobytes().ljust(-(-a.nbytes // 8) * 8, b"\0") for a in (built.table, built.begins, built.bitmap)]
        info = {**built.info, "key": key}
        with replacing(place) as temporary:
            with open(temporary, "wb") as file:
                file.write((_MAGIC + json.dumps(info).encode()).ljust(_HEADER))
                file.writelines(arrays)
            os.chmod(temporary, 0o644)  # ranks of other users read it too
    except (OSError, UsageError) as error:
        logger.debug(f"{place}: no cache: {error}")
        return False
    return True


def _open(place: str, key: Optional[str]) -> Optional[PhraseTable]:
    """Map a cache; None where there is none, or one of another list, version or length, or a damaged one."""
    try:
        with open(place, "rb") as file:
            header = file.read(_HEADER)
            size = os.fstat(file.fileno()).st_size
            if not header.startswith(_MAGIC):
                return None
            info = json.loads(header[len(_MAGIC) :])
            if info["key"] != key:
                return None
            ends = np.cumsum([_HEADER] + [-(-np.dtype(kind).itemsize * n // 8) * 8 for kind, n in _layout(info)])
            if size != ends[-1]:
                return None
            whole = np.memmap(file, dtype=np.uint8, mode="r")
        arrays = tuple(
            np.asarray(whole[at : at + np.dtype(kind).itemsize * n]).view(kind) for at, (kind, n) in zip(ends, _layout(info))
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return PhraseTable(info, arrays, place)


def _reopen(place: str, info: Dict[str, Any]) -> PhraseTable:
    table = _open(place, info["key"])
    if table is None:
        raise UsageError(f"{place}: the cache of --pmi-vocab was removed or changed while it was in use; start again")
    return table
