"""Split text into words, with boundaries that no phrase crosses (no fairseq)."""

import re
import unicodedata
from typing import List, NamedTuple, Optional, Tuple

import numpy as np

from ..errors import UsageError

MODES = ("whitespace", "character", "sentencepiece")
_BOUNDARY = "\0"  # a control character: stripped like punctuation, so that nothing is left of it but a boundary
_CHARACTERS = re.compile(r"[0-9A-Za-z]+|\n|\S")
# what ends a line for one program or another, and control characters, which no list of phrases may hold
_ENDS = re.compile("[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029]")
_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")


class Split(NamedTuple):
    """The words of a batch of lines.

    Attributes:
        words: the ``V`` different words.
        ids: int64 ``[N]``, the words of the text in order, as indices into ``words``.
        segments: int64 ``[N]``, increasing; neighbours with a boundary between them have different numbers.
    """

    words: List[str]
    ids: np.ndarray
    segments: np.ndarray


def strip_word(raw: str) -> Tuple[str, bool, bool]:
    """Strip Unicode categories P, S and C from both ends; returns the word, and whether anything was stripped before and
    after it. Inside a word nothing changes: ``don't`` and ``state-of-the-art`` are words."""
    if raw and raw[0].isalnum() and raw[-1].isalnum():
        return raw, False, False
    begin, end = 0, len(raw)
    while begin < end and unicodedata.category(raw[begin])[0] in "PSC":
        begin += 1
    while begin < end and unicodedata.category(raw[end - 1])[0] in "PSC":
        end -= 1
    return raw[begin:end], begin > 0, end < len(raw)


class WordSplitter:
    """Split text into words, lower-cased unless ``keep_case``.

    Args:
        mode: ``"whitespace"``; ``"character"``, where every character is a word, and every run of ASCII letters and digits;
            or ``"sentencepiece"``, where every piece of ``model`` (a file) is a word.
    """

    def __init__(self, mode: str = "whitespace", keep_case: bool = False, model: Optional[str] = None):
        if mode not in MODES:
            raise UsageError(f"--words must be one of {', '.join(MODES)}, got {mode!r}")
        if (model is not None) != (mode == "sentencepiece"):
            raise UsageError("--words sentencepiece and --sentencepiece-model FILE go together")
        self.mode, self.keep_case, self.model = mode, keep_case, None
        if model is not None:
            try:
                with open(model, "rb") as file:
                    self.model = file.read()
            except OSError as error:
                raise UsageError(f"--sentencepiece-model {model}: can't read it: {error.strerror}") from None
            try:
                self._load()
            except RuntimeError:
                raise UsageError(f"--sentencepiece-model {model}: is not a sentencepiece model") from None
        self._processor = None  # loaded where it is used: it may be another machine

    def _load(self):
        try:
            import sentencepiece
        except ImportError:
            raise UsageError("--words sentencepiece needs the package sentencepiece: pip install sentencepiece") from None
        processor = sentencepiece.SentencePieceProcessor()
        processor.LoadFromSerializedProto(self.model)
        return processor

    def split(self, text: str) -> Split:
        """Split lines (joined by ``"\\n"``) into words.

        Boundaries: ends of lines (of any system), control characters, and what :func:`strip_word` strips.
        """
        text = _ENDS.sub("\n", text)
        raw_ids = _Interned()
        raw = self._split_raw(text)
        order = np.fromiter(map(raw_ids.__getitem__, raw), np.int64, len(raw))
        # everything else is done once for each different raw word
        word_ids = _Interned()
        stripped = [strip_word(word) for word in raw_ids]
        ids = np.array([word_ids[word] if word else -1 for word, _, _ in stripped], dtype=np.int64)
        before = np.array([begin for _, begin, _ in stripped], dtype=bool)
        after = np.array([end for _, _, end in stripped], dtype=bool)
        ids, breaks, after = ids[order], before[order], after[order]
        breaks[1:] |= after[:-1]
        # nothing but punctuation: before it and after it are one boundary, which the next word takes over
        segments = np.cumsum(breaks)
        keep = ids >= 0
        return Split(list(word_ids), ids[keep], segments[keep])

    def _split_raw(self, text: str) -> List[str]:
        if self.mode == "sentencepiece":
            if self._processor is None:
                self._processor = self._load()
            raw: List[str] = []
            for pieces in self._processor.encode(text.split("\n"), out_type=str):
                for piece in pieces:
                    # a piece of bytes is no text
                    raw += [_BOUNDARY] if _BYTE_PIECE.fullmatch(piece) else piece.replace("\u2581", " ").split()
                raw.append(_BOUNDARY)
            return raw if self.keep_case else [word.lower() for word in raw]
        if not self.keep_case:
            text = text.lower()
        if self.mode == "character":
            return _CHARACTERS.findall(text)
        return text.replace("\n", f" {_BOUNDARY} ").split()

    def __getstate__(self):
        return {**self.__dict__, "_processor": None}


class _Interned(dict):
    """Number new keys in the order of their first use."""

    def __missing__(self, key: str) -> int:
        self[key] = number = len(self)
        return number
