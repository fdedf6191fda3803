"""Text into what the study trains on: one vocabulary, rows for pretraining, labelled texts for each task.

    python examples/should_you_mask_15/data.py TEXT OUT [--vocabulary 3000]

TEXT holds ``pretrain.txt`` (one text a line) and, for each task, a folder with ``train.tsv``, ``dev.tsv`` and ``test.tsv``
(``text<TAB>label``). OUT gets ``sp.model``, ``pretrain`` (what ``--task decoupled_mlm`` reads, a sentence a row; its
validation text is that of the tasks' dev parts) and a folder for each task (what ``--task sentence_prediction`` reads).
``run.py`` calls this, and ``split_texts`` before where the texts are to be fetched.
"""

import argparse
import os
import random
import re
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import corpora  # noqa: E402
from commands import write  # noqa: E402

SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"])")
SPLITS = ("train", "dev", "test")
HELD_OUT = {"dev": 500, "test": 2000}  # texts of a task that no model sees in training, not even without their labels


def split_texts(downloads, out, labels):
    """Fetch both corpora and write TEXT for :func:`main` to ``out``.

    Each task's texts are shuffled once and for all: 2,000 are for the test, 500 for choosing settings. Of the others the
    first ``labels`` are the labelled examples, and all of them are pretraining text, without their labels.
    """
    articles = corpora.read_wiki(corpora.fetch("wiki", downloads))
    topics = {a.text: a.topic.replace(" ", "-") for a in articles if a.topic != "Uncategorized"}
    reviews = {text: str(label) for text, label in corpora.read_reviews(corpora.fetch("reviews", downloads))}
    pretrain = sorted({a.text for a in articles if a.topic == "Uncategorized"} - set(topics))
    temporary = out.with_name(out.name + ".part")
    shutil.rmtree(temporary, ignore_errors=True)
    for task, found in (("topics", topics), ("reviews", reviews)):
        rows = sorted(found.items())
        random.Random(1).shuffle(rows)
        parts = {}
        for split, count in HELD_OUT.items():
            parts[split], rows = rows[:count], rows[count:]
        pretrain += [text for text, _ in rows]
        parts["train"] = rows[:labels]
        (temporary / task).mkdir(parents=True)
        for split, part in parts.items():
            write(temporary / task / f"{split}.tsv", "".join(f"{text}\t{label}\n" for text, label in part))
    random.Random(2).shuffle(pretrain)
    write(temporary / "pretrain.txt", "".join(text + "\n" for text in pretrain))
    os.replace(temporary, out)


def read_rows(path):
    """``[(text, label)]`` of a ``.tsv`` file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{path}: can't read it: {getattr(error, 'strerror', None) or error}")
    rows = [tuple(line.split("\t")) for line in lines]
    for number, row in enumerate(rows, 1):
        if len(row) != 2 or not row[0].strip() or not row[1].strip() or len(row[1].split()) != 1:
            sys.exit(f"{path}: line {number} must be a text, a TAB and a label of one word, got {lines[number - 1][:60]!r}")
    if not rows:
        sys.exit(f"{path}: has no rows")
    return rows


def find_tasks(text):
    """The tasks that a folder TEXT holds, in the order of their names."""
    if not (text / "pretrain.txt").is_file():
        sys.exit(f"{text / 'pretrain.txt'}: no such file; the folder must hold it, and TASK/train.tsv, dev.tsv, test.tsv")
    tasks = sorted(path.parent.name for path in text.glob("*/train.tsv"))
    if not tasks:
        sys.exit(f"{text}: no task in it: no TASK/train.tsv")
    return tasks


def count_labels(text, task):
    """How many classes a task has, and how many rows each part of it."""
    rows = {split: read_rows(text / task / f"{split}.tsv") for split in SPLITS}
    known = {label for _, label in rows["train"]}
    if len(known) < 2:
        sys.exit(f"{text / task / 'train.tsv'}: must have at least two labels, got {', '.join(known)}")
    for split, part in rows.items():
        unknown = {label for _, label in part} - known
        if unknown:
            sys.exit(f"{text / task / split}.tsv: has labels that train.tsv does not: {', '.join(sorted(unknown))}")
    return len(known), {split: len(part) for split, part in rows.items()}


def preprocess(folder, *options):
    """``fairseq-preprocess``, in this process: each start of fairseq costs seconds."""
    from fairseq import options as fairseq_options
    from fairseq_cli.preprocess import main as run

    parser = fairseq_options.get_preprocessing_parser()
    run(parser.parse_args(["--only-source", "--workers", "1", "--destdir", str(folder), *map(str, options)]))


def split_sentences(lines):
    """Sentences of the lines, roughly: a row that begins where a sentence does is like the rows of the tasks."""
    return (part for line in lines for part in SENTENCE_END.split(line.strip()) if part)


def binarise(text, out, vocabulary):
    import sentencepiece

    shutil.rmtree(out, ignore_errors=True)  # of a call that was interrupted
    out.mkdir(parents=True)
    try:
        sentencepiece.SentencePieceTrainer.train(
            input=str(text / "pretrain.txt"), model_prefix=str(out / "sp"), vocab_size=vocabulary, minloglevel=2
        )
    except RuntimeError as error:
        sys.exit(f"--vocabulary {vocabulary}: sentencepiece can't make it of {text / 'pretrain.txt'}: {error}")
    model = sentencepiece.SentencePieceProcessor(model_file=str(out / "sp.model"))

    def write_pieces(path, lines):
        write(path, "".join(" ".join(model.encode(line, out_type=str)) + "\n" for line in lines))
        return path

    tasks = {task: {s: read_rows(text / task / f"{s}.tsv") for s in SPLITS} for task in find_tasks(text)}
    with open(text / "pretrain.txt", encoding="utf-8") as file:
        train = write_pieces(out / "train.sp", split_sentences(file))
    held_out = (line for rows in tasks.values() for line, _ in rows["dev"])
    valid = write_pieces(out / "valid.sp", split_sentences(held_out))
    preprocess(out / "pretrain", "--trainpref", train, "--validpref", valid)
    for task, splits in tasks.items():
        for split, rows in splits.items():
            write_pieces(out / f"{split}.{task}.input0", (line for line, _ in rows))
            write(out / f"{split}.{task}.label", "".join(label + "\n" for _, label in rows))
        for part, known in (("input0", ["--srcdict", out / "pretrain" / "dict.txt"]), ("label", [])):
            # fairseq's validation is our dev part
            names = [(f"--{name}pref", out / f"{split}.{task}.{part}") for name, split in zip(("train", "valid", "test"), SPLITS)]
            preprocess(out / task / part, *known, *(x for pair in names for x in pair))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, metavar="TEXT")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--vocabulary", type=int, default=3000, help="pieces")
    args = parser.parse_args()
    temporary = args.out.with_name(args.out.name[:60] + ".part")  # a name has up to 255 bytes
    binarise(args.text, temporary, args.vocabulary)
    shutil.rmtree(args.out, ignore_errors=True)
    os.replace(temporary, args.out)


if __name__ == "__main__":
    main()
