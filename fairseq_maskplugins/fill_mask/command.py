"""``maskplugins fill-mask``: fill <mask> in sentences with a masked language model that fairseq trained."""

import argparse
import os
from typing import Any, Dict, List, Optional

from ..cli import add_json_option, reporting
from ..errors import UsageError, naming

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


def run(args: argparse.Namespace) -> None:
    with reporting(args.json) as report:
        report.update(checkpoint=args.checkpoint, sentences=_fill_all(args))


def _fill_all(args: argparse.Namespace) -> List[Dict[str, Any]]:
    """Print the fillings of every sentence; returns them."""
    for text in args.text:
        if "<mask>" not in text:
            raise UsageError(f"every sentence needs a <mask>, got {text!r}")
    if args.topk < 1:
        raise UsageError(f"--topk must be at least 1, got {args.topk}")
    from fairseq import checkpoint_utils
    from omegaconf import OmegaConf

    from ..checkpoints import read_upgraded_checkpoint, require_checkpoint
    from ..decoupled_mlm.dictionary import build_vocabulary, load_tokenizer, name_of
    from ..decoupled_mlm.loading import building, first_directory, require_pretraining
    from ..decoupled_mlm.task import check_model
    from .fill import encode_around_masks, fill, show_entries

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
    bpe = {"_name": args.bpe, **given} if args.bpe else cfg.bpe
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
