"""``maskplugins fill-mask``: fill <mask> in sentences with a masked language model that fairseq trained."""

import argparse
import os
from typing import Any, Dict, List, Optional, Tuple

import torch

from ..checkpoints import read_upgraded_checkpoint, require_checkpoint
from ..cli import add_json_option, reporting
from ..decoupled_mlm.dictionary import build_vocabulary, load_tokenizer, name_of, tokenizer_options
from ..decoupled_mlm.loading import building, first_directory, require_pretraining
from ..decoupled_mlm.task import check_model
from ..errors import UsageError, naming
from ..show_masks.texts import printable
from ..vocabulary import Vocabulary

EXAMPLE = """example:
  maskplugins fill-mask checkpoints/checkpoint_best.pt data-bin \\
      --bpe sentencepiece --sentencepiece-model sp.model 'The capital of France is <mask> .'

A piece that continues a word is shown as ##ing, one that begins a word as play.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", help="checkpoint of a masked language model (RoBERTa and its like)")
    parser.add_argument("data", help="data directory that it was trained on; its dict.txt is read")
    parser.add_argument("text", nargs="+", help="sentences, each with one or more <mask>")
    parser.add_argument("--bpe", help="tokenizer (default: the one named in the checkpoint)")
    parser.add_argument("--sentencepiece-model", help="model file, for --bpe sentencepiece")
    parser.add_argument("--gpt2-encoder-json", help="encoder.json, for --bpe gpt2")
    parser.add_argument("--gpt2-vocab-bpe", help="vocab.bpe, for --bpe gpt2")
    parser.add_argument(
        "--topk", type=int, default=5, help="fillings to show for each <mask>, at most all that there are (default: 5)"
    )
    add_json_option(parser)


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


def fill(
    model: Any, dictionary: Any, vocabulary: Vocabulary, tokens: List[str], topk: int
) -> List[List[Tuple[float, int]]]:
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


def run(args: argparse.Namespace) -> None:
    with reporting(args.json) as report:
        report.update(checkpoint=args.checkpoint, sentences=_fill_all(args))


def _check_bpe(checkpoint: str, bpe: Any) -> Any:
    """The tokenizer that a checkpoint names, unless that is somewhere on the network, or a device: checkpoints come from
    anywhere, and reading one must not."""
    for name, value in tokenizer_options(bpe):
        if isinstance(value, str) and ("://" in value or (os.path.exists(value) and not os.path.isfile(value))):
            raise UsageError(
                f"{checkpoint}: names {value} as its tokenizer's {name}, which is no file: give --bpe and its files"
            )
    return bpe


def _fill_all(args: argparse.Namespace) -> List[Dict[str, Any]]:
    """Print the fillings of every sentence; returns them."""
    from fairseq import checkpoint_utils
    from omegaconf import OmegaConf

    for text in args.text:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:  # what the shell handed over was none
            raise UsageError(f"every sentence must be UTF-8, got {text!r}") from None
        if "<mask>" not in text:
            raise UsageError(f"every sentence needs a <mask>, got {text!r}")
    if args.topk < 1:
        raise UsageError(f"--topk must be at least 1, got {args.topk}")
    require_checkpoint(args.checkpoint)
    data = first_directory(args.data)
    if not os.path.isfile(os.path.join(data, "dict.txt")):
        raise UsageError(f"{data}: no dict.txt there; it must be the data directory of the pretraining")
    overrides = {"data": args.data}
    state = read_upgraded_checkpoint(args.checkpoint, overrides)
    require_pretraining(args.checkpoint, state)
    with building(args.checkpoint):
        models, cfg, task = checkpoint_utils.load_model_ensemble_and_task([args.checkpoint], overrides, state=state)
        check_model(models[0], cfg.model)
    names = ("sentencepiece_model", "gpt2_encoder_json", "gpt2_vocab_bpe")
    given = {name: getattr(args, name) for name in names if getattr(args, name)}
    bpe = {"_name": args.bpe, **given} if args.bpe else _check_bpe(args.checkpoint, cfg.bpe)
    if bpe is None:
        raise UsageError("--bpe is needed: the checkpoint does not name its tokenizer")
    bpe = OmegaConf.create(bpe) if isinstance(bpe, dict) else bpe
    encode = load_tokenizer(bpe).encode
    model = models[0].eval()
    with naming({"dict.txt": os.path.join(data, "dict.txt")}):
        vocabulary = build_vocabulary(task.dictionary, False, bpe)
    shown = show_entries(task.dictionary.symbols, vocabulary)
    sentences = []
    for text in args.text:
        print(text)
        try:
            tokens = encode_around_masks(encode, text)
        except Exception as error:  # files of a tokenizer that does not know the text's characters
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise UsageError(f"--bpe {name_of(bpe)}: this tokenizer can't encode {text!r}: {reason}") from None
        found = fill(model, task.dictionary, vocabulary, tokens, args.topk)
        for number, fillings in enumerate(found, 1):
            print(f"  <mask> {number}: {', '.join(f'{shown[i][0]} {p:.3f}' for p, i in fillings)}")
        masks = [[_describe(p, task.dictionary[i], *shown[i]) for p, i in fillings] for fillings in found]
        sentences.append({"text": text, "masks": masks})
    return sentences


def _describe(probability: float, symbol: str, text: str, begins_word: Optional[bool]) -> Dict[str, Any]:
    return {"token": symbol, "text": text, "begins_word": begins_word, "probability": probability}
