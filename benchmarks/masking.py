"""Masking speed beside fairseq's ``masked_lm`` and Hugging Face's collators: same rows, same process, one thread.

    python benchmarks/masking.py [--rows 8192] [--length 128] [--vocab 4000]

Prints tokens/s and the ratio to fairseq's pipeline of the same kind, for masking alone (rows in memory, batches of 256)
and for the whole path from the indexed data set to a masked batch. The floor is what copying the batch twice costs: no
masker can be faster. Hugging Face's rows stand in the table where ``transformers`` is installed. Nothing here asserts:
speed is read, not tested.
"""

import argparse
import logging
import os
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
logging.disable(logging.WARNING)

import numpy as np  # noqa: E402
import torch  # noqa: E402
from fairseq.data import Dictionary, MaskTokensDataset, indexed_dataset  # noqa: E402
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask  # noqa: E402

from fairseq_maskplugins.decoupled_mlm.dataset import MaskPlanDataset, build_blocks  # noqa: E402
from fairseq_maskplugins.decoupled_mlm.dictionary import build_vocabulary  # noqa: E402
from fairseq_maskplugins.decoupled_mlm.plan import Planner  # noqa: E402
from fairseq_maskplugins.decoupled_mlm.rates import Rates  # noqa: E402
from fairseq_maskplugins.decoupled_mlm.sample import mask_sample  # noqa: E402
from fairseq_maskplugins.maskers import build_masker  # noqa: E402

BATCH, RATE, RANDOM, SAME = 256, 0.4, 0.1, 0.1


def make_data(folder, rows, length, words):
    """An indexed data set of one stream of random words, and its dictionary; about one piece in three begins a word."""
    with open(folder / "dict.txt", "w") as out:
        out.writelines(f"{'▁' if i % 3 == 0 else ''}w{i} {words - i}\n" for i in range(words))
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    builder = indexed_dataset.make_builder(str(folder / "train.bin"), "mmap", vocab_size=len(dictionary))
    ids = np.random.RandomState(0).randint(dictionary.nspecial, len(dictionary), size=rows * (length - 1))
    for line in np.split(ids, range(500, len(ids), 500)):
        builder.add_item(torch.from_numpy(np.append(line[:-1], dictionary.eos())))
    builder.finalize(str(folder / "train.idx"))
    return dictionary


def word_begins(dictionary):
    return np.array([i < dictionary.nspecial or not s.startswith("w") for i, s in enumerate(dictionary.symbols)])


def batches_of(indices):
    return [indices[i : i + BATCH] for i in range(0, len(indices) - BATCH + 1, BATCH)]


def tokens_per_second(run, batches, tokens, budget=1.5):
    """Median over batches of tokens/s, for at least 3 batches and at most ``budget`` seconds."""
    run(batches[0])
    times, start = [], time.perf_counter()
    for number in range(10_000):
        begin = time.perf_counter()
        run(batches[number % len(batches)])
        times.append(time.perf_counter() - begin)
        if len(times) >= 3 and time.perf_counter() - start > budget:
            break
    return tokens / statistics.median(times)


def stock_pipeline(folder, dictionary, length, whole_words):
    """fairseq's own task on the same files; whole words as it would be if its flag worked."""
    cfg = MaskedLMConfig(
        data=str(folder), tokens_per_sample=length, mask_prob=RATE, random_token_prob=RANDOM, leave_unmasked_prob=SAME, seed=1
    )
    task = MaskedLMTask(cfg, dictionary)
    if whole_words:
        task.args = Namespace(bpe=None)
        import fairseq.tasks.masked_lm as module

        cfg.mask_whole_words = True
        begins = torch.from_numpy(word_begins(dictionary).astype(np.uint8))
        module.get_whole_word_mask = lambda args, d: begins
    task.load_dataset("train")
    return task


def stock_masking(rows, dictionary, whole_words):
    """fairseq's masking alone: rows in memory, source and target."""
    mask = torch.from_numpy(word_begins(dictionary).astype(np.uint8)) if whole_words else None
    return MaskTokensDataset.apply_mask(
        rows,
        dictionary,
        pad_idx=dictionary.pad(),
        mask_idx=dictionary.index("<mask>"),
        seed=1,
        mask_prob=RATE,
        random_token_prob=RANDOM,
        leave_unmasked_prob=SAME,
        mask_whole_words=mask,
    )


class Rows(torch.utils.data.Dataset):
    def __init__(self, tokens):
        self.tokens, self.sizes = tokens, np.full(len(tokens), tokens.shape[1])

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index]


def hugging_face(tokens, dictionary, whole_words):
    """The collator's own masking step on a padded batch, or None where transformers is not installed."""
    try:
        from tokenizers import Tokenizer, models
        from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast
    except ImportError:
        return None
    symbols = {symbol: i for i, symbol in enumerate(dictionary.symbols)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(symbols, unk_token="<unk>")),
        bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>", mask_token="<mask>",
    )  # fmt: skip
    if whole_words:  # its whole-word collator reads words from ## marks, which these rows do not have
        return None
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=RATE)
    special = torch.tensor(tokens < dictionary.nspecial)
    return lambda batch: collator.torch_mask_tokens(torch.from_numpy(tokens[batch]), special_tokens_mask=special[batch])


def measure(kind, folder, dictionary, length):
    whole_words = kind == "whole_word"
    vocabulary = build_vocabulary(dictionary, False, None)
    vocabulary.find_word_begins = lambda: word_begins(dictionary)
    planner = Planner(build_masker(kind, Namespace(), vocabulary), None, RANDOM, SAME)
    source = indexed_dataset.make_dataset(str(folder / "train"), "mmap")
    blocks = build_blocks(source.sizes, "none", length - 1)
    ours = MaskPlanDataset(source, blocks, planner, seed=1, copies=1, path=str(folder / "train"))
    pad, mask, rates = vocabulary.pad, vocabulary.mask, Rates(RATE, RATE)
    batches = batches_of(np.arange(len(ours)))
    per_batch = BATCH * length

    stock = stock_pipeline(folder, dictionary, length, whole_words)
    dataset = stock.datasets["train"]
    tokens = np.stack([np.concatenate([[vocabulary.bos], ours[i][1]]) for i in range(len(ours) - 1)]).astype(np.int64)
    stock_source, stock_target = stock_masking(Rows(torch.from_numpy(tokens)), dictionary, whole_words)
    lengths = torch.full((BATCH,), length)

    def our_masking(batch):
        from fairseq_maskplugins.rng import SequenceDraws

        plan = planner.draw(tokens[batch], SequenceDraws(1, 1, batch))
        parts = {name: torch.from_numpy(value) for name, value in plan._asdict().items()}
        sample = {"id": torch.from_numpy(batch), "nsentences": BATCH, "ntokens": per_batch, "mask_plan": parts}
        sample["net_input"] = {"src_tokens": torch.from_numpy(tokens[batch]), "src_lengths": lengths}
        return mask_sample(sample, rates, pad, mask)

    def stock_masks(batch):
        return [(stock_source[int(i)], stock_target[int(i)]) for i in batch]

    alone = {
        "fairseq masked_lm": tokens_per_second(stock_masks, batches[:-1], per_batch),
        "Hugging Face collator": hugging_face(tokens, dictionary, whole_words),
        "fairseq_maskplugins": tokens_per_second(our_masking, batches[:-1], per_batch),
    }
    if alone["Hugging Face collator"]:
        alone["Hugging Face collator"] = tokens_per_second(alone["Hugging Face collator"], batches[:-1], per_batch)
    path = {
        "fairseq masked_lm": tokens_per_second(lambda b: dataset.collater([dataset[int(i)] for i in b]), batches, per_batch),
        "fairseq_maskplugins": tokens_per_second(
            lambda b: mask_sample(ours.collater([ours[int(i)] for i in b]), rates, pad, mask), batches, per_batch
        ),
    }
    out = np.empty_like(tokens[:BATCH])
    floor = tokens_per_second(lambda b: (np.copyto(out, tokens[:BATCH]), np.copyto(out, tokens[:BATCH])), [0], per_batch, 0.2)
    for what, found in (("masking alone", alone), ("data set to batch", path)):
        for name, speed in found.items():
            if speed:
                print(f"| {kind} | {what} | {name} | {speed / 1e6:.2f} | {speed / found['fairseq masked_lm']:.1f} |")
    print(f"| {kind} | floor: copying the batch twice | numpy | {floor / 1e6:.0f} | {floor / alone['fairseq masked_lm']:.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--vocab", type=int, default=4000, help="words in the dictionary")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"rows of {args.length} tokens in batches of {BATCH}, dictionary of {args.vocab}, rate {RATE}, 80-10-10\n")
    print("| masker | what | whose | M tokens/s | times fairseq |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        dictionary = make_data(Path(folder), args.rows, args.length, args.vocab)
        dictionary.add_symbol("<mask>")
        for kind in ("uniform", "whole_word"):
            measure(kind, Path(folder), dictionary, args.length)


if __name__ == "__main__":
    main()
