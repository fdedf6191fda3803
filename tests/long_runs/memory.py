"""Memory, files and processes of a run over shards of data: ``python tests/long_runs/memory.py [options of fairseq-train]``.

Makes four shards of random text, trains for eight epochs with four data workers (one shard an epoch, so each is read
twice), and prints what was held in each epoch.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import harness  # noqa: E402
from watch import settled, watch  # noqa: E402

SHARDS, EPOCHS, WORKERS, WORDS, LINES = 4, 8, 4, 1000, 2500
MODEL = (
    "--arch roberta_base --encoder-layers 1 --encoder-embed-dim 32 --encoder-ffn-embed-dim 32 "
    "--encoder-attention-heads 2 --max-positions 64 --optimizer adam --lr 0.001 --lr-scheduler fixed --clip-norm 1.0 "
    "--seed 3 --cpu --log-format json --log-interval 50 --criterion masked_lm --tokens-per-sample 64 --batch-size 64"
).split()
OURS = (
    "--task decoupled_mlm --criterion decoupled_mlm --corruption-rate 0.2 --prediction-rate 0.4 --random-token-prob 0.1 "
    "--masker span --span-unit token"
).split()
BEGUN = re.compile(r"begin training epoch (\d+)")


def write_shards(folder):
    """Shards of 2,500 lines of 50 words (0.13 million tokens), and a small validation set in the first."""
    import torch
    from fairseq.data import Dictionary, indexed_dataset

    dictionary = Dictionary()
    for word in range(WORDS):
        dictionary.add_symbol(f"w{word}", n=WORDS - word)
    for shard in range(SHARDS):
        rng, place = np.random.RandomState(shard), folder / f"shard{shard}"
        place.mkdir()
        dictionary.save(str(place / "dict.txt"))
        for split, lines in (("train", LINES), ("valid", 200)):
            builder = indexed_dataset.make_builder(str(place / f"{split}.bin"), impl="mmap", vocab_size=len(dictionary))
            for row in rng.zipf(1.3, (lines, 50)) % WORDS:
                builder.add_item(torch.from_numpy(np.append(row + 4, 2)).int())
            builder.finalize(str(place / f"{split}.idx"))
    return ":".join(str(folder / f"shard{shard}") for shard in range(SHARDS))


def measure(folder, *options):
    """``{epoch: settled sample}`` of a run with these options on top of MODEL."""
    folder = Path(folder)
    more = ["--max-epoch", EPOCHS, "--num-workers", WORKERS, "--no-epoch-checkpoints"]
    command = harness.train_command(write_shards(folder), folder / "save", *options, *more, base=MODEL)

    def stage(line):
        if "done training" in line:
            return 0  # what follows is the end of Python
        found = BEGUN.search(line)
        return int(found.group(1)) if found else None

    samples = watch(command, str(folder / "log.txt"), stage)
    return {epoch: settled(found) for epoch, found in sorted(samples.items()) if epoch > 0}


def table(found):
    lines = [
        "| epoch | RSS, MB | PSS, MB | USS, MB | open files | mapped data files | processes |",
        "|---|---|---|---|---|---|---|",
    ]
    for epoch, s in found.items():
        lines.append(f"| {epoch} | {s.rss:.0f} | {s.pss:.0f} | {s.uss:.0f} | {s.files:.0f} | {s.maps:.0f} | {s.processes:.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    place = tempfile.mkdtemp()
    try:
        print(table(measure(place, *(sys.argv[1:] or OURS))))
    finally:
        shutil.rmtree(place)
