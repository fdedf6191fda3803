"""Fill ``<mask>`` with a masked language model (torch; model, dictionary and tokenizer are passed in)."""

from typing import Any, List, Optional, Tuple

import torch

from ..errors import UsageError
from ..show_masks.texts import printable
from ..vocabulary import Vocabulary


def encode_around_masks(encode: Any, text: str) -> List[str]:
    """Tokens of a text with ``<mask>`` standing for whole tokens.

    The pieces of text between the masks are encoded on their own. A tokenizer that marks the beginning of words with
    ``▁`` puts one before each piece; it is taken off where no space follows the mask.
    """
    tokens: List[str] = []
    for number, span in enumerate(text.split("<mask>")):
        if number:
            tokens.append("<mask>")
        # the space before a mask belongs to the word that fills it
        pieces = encode(span.rstrip()).split() if span.strip() else []
        if pieces and number and not span[0].isspace() and pieces[0].startswith("▁"):
            pieces = [pieces[0][1:]] * bool(pieces[0][1:]) + pieces[1:]
        tokens.extend(pieces)
    return tokens


def fill(model: Any, dictionary: Any, vocabulary: Vocabulary, tokens: List[str], topk: int) -> List[List[Tuple[float, int]]]:
    """The likeliest fillings: for each mask up to ``topk`` pairs of probability and id, the likeliest first. Only what
    text is made of fills a mask: no special, no padding word, no ``<mask>``."""
    mask = vocabulary.mask
    ids = [dictionary.bos()] + [mask if t == "<mask>" else dictionary.index(t) for t in tokens] + [dictionary.eos()]
    source = torch.tensor([ids])
    if source.size(1) > model.max_positions():
        raise UsageError(f"the text must have at most {model.max_positions()} tokens, got {source.size(1)}")
    with torch.no_grad():
        logits = model(source, masked_tokens=source == mask)[0].float()
    words = torch.from_numpy(vocabulary.replacements)
    best = logits.view(-1, logits.size(-1))[:, words].softmax(dim=-1).topk(min(topk, len(words)), dim=-1)
    return [list(zip(*row)) for row in zip(best.values.tolist(), words[best.indices].tolist())]


def show_entries(symbols: List[str], vocabulary: Vocabulary) -> List[Tuple[str, Optional[bool]]]:
    """What is shown of each entry, and whether it begins a word: ``##ing`` does not, as in BERT's dictionaries.

    Where the tokenizer does not say what begins a word the entry itself is shown, and None stands for the answer.
    """
    try:
        begins = vocabulary.find_word_begins() if vocabulary.find_word_begins else None
    except UsageError:  # a tokenizer whose pieces bear their marks elsewhere, or one of characters
        begins = None
    if begins is None:
        return [(printable(symbol), None) for symbol in symbols]
    texts = [printable(piece.decode("utf-8", errors="backslashreplace")) for piece in vocabulary.find_pieces()]
    return [
        ((text if begin else f"##{text}") if text else printable(symbol), bool(begin))  # the mark of a word alone
        for text, begin, symbol in zip(texts, begins, symbols)
    ]
