"""A sentencepiece model and a fairseq dictionary as a tokenizer of ``tokenizers`` with the same ids (no fairseq here)."""

import re
from typing import Any, Dict, List, Set, Tuple

from ..errors import UsageError
from .tokenizer import MASK, SPECIALS, Built, add_specials, make_files

UNIGRAM, BPE = 1, 2
NORMAL, USER_DEFINED, BYTE = 1, 4, 6
SPACE = "\u2581"
# around every run of characters that the model does not know; code points for private use
OPEN, CLOSE = "\ue000", "\ue001"
LAST = -1e6  # score of what must lose against any pieces of the model


def read_model(content: bytes) -> Any:
    """Parse a ``.model`` file; refuse one that ``tokenizers`` can't represent."""
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2

    try:
        model = sentencepiece_model_pb2.ModelProto.FromString(content)
    except DecodeError:
        raise UsageError("--sentencepiece-model: is no sentencepiece model") from None
    if model.trainer_spec.model_type not in (UNIGRAM, BPE) or not model.pieces:
        raise UsageError("--sentencepiece-model: must be a unigram or BPE model")
    own = [piece.piece for piece in model.pieces if piece.type == USER_DEFINED]
    if own:
        raise UsageError(f"--sentencepiece-model: symbols defined by the user can't be exported, found {own[0]!r}")
    if model.trainer_spec.treat_whitespace_as_suffix or not model.normalizer_spec.escape_whitespaces:
        raise UsageError("--sentencepiece-model: must write spaces as \u2581 before words")
    return model


def build_sentencepiece(content: bytes, symbols: List[str], longest: int) -> Built:
    """Build the files of a fast tokenizer whose ids are those of fairseq's dictionary ``symbols``.

    sentencepiece gives a run of unknown characters as one piece, and fairseq looks it up: frequent ones are in the dictionary.
    Marks around such runs let the tokenizer do the same: inside a longer run no entry matches.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers

    model = read_model(content)
    fallback = model.trainer_spec.byte_fallback
    kinds = (NORMAL, BYTE) if fallback else (NORMAL,)
    scores = {p.piece: p.score for p in model.pieces if p.type in kinds and p.piece not in (*SPECIALS, MASK)}
    if not set(scores) & set(symbols):
        raise UsageError("dict.txt: was not made with this sentencepiece model: they have no piece in common")
    characters = {piece for piece in scores if len(piece) == 1} | {" "}
    present = set(symbols)
    aliases = [piece for piece in scores if piece not in present]
    others = {s for s in symbols if s not in scores and s not in (*SPECIALS, MASK)}  # padding words, too
    runs = {s for s in others if not set(s) & characters}
    unigram = model.trainer_spec.model_type == UNIGRAM
    marked = runs if unigram and not fallback else set()
    # under these names no text leads to them but through the marks; BPE and byte fallback have no use for the marks
    tokens = [f"{OPEN}{s}{CLOSE}" if s in others else s for s in symbols]
    pieces = [*tokens, *aliases]
    if unigram:
        weighted = [(piece, scores.get(piece, LAST)) for piece in pieces]
        tokenizer = Tokenizer(models.Unigram(weighted, unk_id=symbols.index("<unk>"), byte_fallback=fallback))
    else:
        vocab = {piece: row for row, piece in enumerate(pieces)}
        merges = find_merges(scores)
        tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=fallback))
    tokenizer.normalizer = _normalizer(model.normalizer_spec, characters if marked else set())
    scheme = "first" if model.normalizer_spec.add_dummy_prefix else "never"
    # where no piece holds a space inside, words can't influence each other: cut there, it is faster
    split = not any(SPACE in piece[1:] for piece in scores)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme, split=split)
    tokenizer.decoder = _decoder(scheme, split, bool(others), fallback)
    add_specials(tokenizer, symbols)
    unreachable = sorted(s for s in runs - marked)
    files = make_files(tokenizer, "PreTrainedTokenizerFast", longest, {"sp.model": content})
    return Built(files, aliases, unreachable)


def find_merges(scores: Dict[str, float]) -> List[Tuple[str, str]]:
    """The merges of a BPE model in order: sentencepiece joins the pair whose joint piece has the highest score."""
    merges = []
    for piece, score in scores.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in scores and right in scores:
                merges.append((-score, -scores[left], -scores[right], left, right))
    return [(left, right) for *_, left, right in sorted(merges)]


def _normalizer(spec: Any, known: Set[str]) -> Any:
    from tokenizers import Regex, normalizers

    steps: List[Any] = []
    if spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(spec.precompiled_charsmap))
    if spec.remove_extra_whitespaces:
        # leading spaces stay as one: it is the mark of a word's beginning that would be put there, and after a <mask>
        # it says that a word begins
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace(Regex(" +$"), "")]
    if known:
        strange = "[^" + "".join(map(_escape, sorted(known))) + OPEN + CLOSE + "]"
        steps.append(normalizers.Replace(Regex(f"(?<!{strange})(?={strange})"), OPEN))
        steps.append(normalizers.Replace(Regex(f"(?<={strange})(?!{strange})"), CLOSE))
    return normalizers.Sequence(steps)


def _escape(character: str) -> str:
    return "\\" + character if re.match(r"[!-/:-@\[-`{-~]", character) else character


def _decoder(scheme: str, split: bool, marked: bool, fallback: bool) -> Any:
    from tokenizers import decoders

    steps: List[Any] = [decoders.Replace(OPEN, ""), decoders.Replace(CLOSE, "")] if marked else []
    if fallback:
        steps += [decoders.ByteFallback()]
    return decoders.Sequence([*steps, decoders.Metaspace(SPACE, prepend_scheme=scheme, split=split)])
