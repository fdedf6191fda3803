"""A small labelled corpus in the layout of fairseq's ``sentence_prediction``, and a checkpoint to fine-tune from."""

import harness

FINETUNE = tuple(
    harness.TINY
    + (
        "--task sentence_prediction --criterion sentence_prediction --num-classes 2 --batch-size 8 --init-token 0 "
        "--separator-token 2 --required-batch-size-multiple 1 --best-checkpoint-metric accuracy "
        "--maximize-best-checkpoint-metric"
    ).split()
)


def build_labelled(corpus, folder, train=96, valid=24):
    """Write ``folder/bin`` with ``input0`` and ``label``: whether a line speaks of the captain or a sailor. The pieces
    and the dictionary are those of the corpus."""
    import sentencepiece as spm

    pieces = spm.SentencePieceProcessor(model_file=str(corpus / "sp.model"))
    folder.mkdir(parents=True, exist_ok=True)
    for split, count, seed in (("train", train, 11), ("valid", valid, 12)):
        lines = harness.make_lines(count, seed, longest=1)
        labels = ["at sea" if "captain" in line.lower() or "sailor" in line.lower() else "ashore" for line in lines]
        (folder / f"{split}.input0").write_text("".join(" ".join(pieces.encode(x, out_type=str)) + "\n" for x in lines))
        (folder / f"{split}.label").write_text("".join(label.replace(" ", "_") + "\n" for label in labels))
    for name, extra in (("input0", ["--srcdict", corpus / "bin" / "dict.txt"]), ("label", [])):
        harness.preprocess(folder / f"train.{name}", folder / f"valid.{name}", folder / "bin" / name, *map(str, extra))
    # preprocess asks for the split's prefix, and takes what follows the last point as part of it
    return folder / "bin"


def pretrain(corpus, folder, updates=2):
    """A checkpoint of the tiny model, trained for a moment; its options are in it."""
    harness.train(corpus / "bin", folder, "--max-update", updates, "--no-epoch-checkpoints")
    return folder / "checkpoint_last.pt"
