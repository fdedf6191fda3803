"""GPT-2's byte-level BPE with the ids of a fairseq dictionary, as the files of RobertaTokenizer (no fairseq here)."""

import json
from typing import Dict, List

from ..errors import UsageError
from ..pieces import byte_alphabet
from .tokenizer import Built, add_specials, make_files


def tokens_of(encoder: Dict[str, int], symbols: List[str]) -> List[str]:
    """What each entry of the dictionary stands for: its symbols are GPT-2's ids; specials and padding words are left."""
    names = {str(number): token for token, number in encoder.items()}
    return [names.get(symbol, symbol) for symbol in symbols]


def build_gpt2(encoder_json: bytes, vocab_bpe: bytes, symbols: List[str], longest: int) -> Built:
    """Build the files of RobertaTokenizer with the ids of fairseq's dictionary ``symbols``, from GPT-2's files."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    try:
        encoder = {str(token): int(number) for token, number in json.loads(encoder_json).items()}
        lines = vocab_bpe.decode().splitlines()
    except (ValueError, AttributeError, TypeError) as error:
        raise UsageError(f"--gpt2-encoder-json, --gpt2-vocab-bpe: can't read them: {error}") from None
    merges = [tuple(line.split()) for line in lines[1:] if line.strip()]
    if not set(byte_alphabet()) <= set(encoder) or not all(len(m) == 2 and "".join(m) in encoder for m in merges):
        raise UsageError("--gpt2-encoder-json, --gpt2-vocab-bpe: must belong together, and hold all 256 bytes")
    tokens = tokens_of(encoder, symbols)
    if len(set(tokens)) < len(tokens) or tokens == symbols:
        raise UsageError("dict.txt: was not made with these GPT-2 files: its entries must be ids of encoder.json")
    present = set(tokens)
    # of <|endoftext|> no text consists
    aliases = [token for token in encoder if token not in present and not token.startswith("<|")]
    vocab = {token: row for row, token in enumerate([*tokens, *aliases])}
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    add_specials(tokenizer, tokens, trim=True)
    others = {
        "vocab.json": json.dumps(vocab, ensure_ascii=False).encode(),
        "merges.txt": ("\n".join(["#version: 0.2", *map(" ".join, merges)]) + "\n").encode(),
        # as fairseq wants them, so that the way back needs nothing else
        "encoder.json": encoder_json,
        "vocab.bpe": vocab_bpe,
    }
    return Built(make_files(tokenizer, "RobertaTokenizer", longest, others), aliases, [])
