"""Speed of the span and PMI maskers beside plain versions and fairseq: same rows, same process, one thread.

    python benchmarks/masking_span_pmi.py [--rows 4096] [--length 128] [--vocab 30000] [--phrases 800000]

Rows are words drawn by Zipf's law, cut into pieces; a part of the phrases occurs in them, the rest does not. Tokens/s
of

- fairseq's ``masked_lm``, uniform, [MASK] only: from the indexed data set to a batch, and its masking alone;
- SpanBERT's way in plain Python: draw a length and a start until enough is masked; with numpy's ``choice``, as in the
  published code, and with the faster draws of Python's ``random``;
- PMI in plain Python: pieces joined to words, longest match against a set of tuples of words, units shuffled and taken;
  and the scan by itself, on words that are joined already;
- ours: mask plan and masked batch, and the units alone.

Each is measured in turn, several times, in processor time; the table has medians. Also what loading the list costs.
"""

import argparse
import logging
import os
import random
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]
logging.disable(logging.WARNING)

import numpy as np  # noqa: E402
import torch  # noqa: E402
from fairseq.data import Dictionary, MaskTokensDataset, indexed_dataset  # noqa: E402
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask  # noqa: E402
from plain_maskers import make_draws, pmi_plain, scan, spanbert, words_of  # noqa: E402

from fairseq_maskplugins.decoupled_mlm.dictionary import build_vocabulary  # noqa: E402
from fairseq_maskplugins.decoupled_mlm.plan import Planner  # noqa: E402
from fairseq_maskplugins.decoupled_mlm.rates import Rates  # noqa: E402
from fairseq_maskplugins.decoupled_mlm.sample import mask_sample  # noqa: E402
from fairseq_maskplugins.maskers import build_masker, span_length_distribution  # noqa: E402
from fairseq_maskplugins.maskers.pmi_vocab import load_phrases  # noqa: E402
from fairseq_maskplugins.rng import SequenceDraws  # noqa: E402

BATCH, RATE = 256, 0.4


def make_symbols(count):
    """Three pieces in four begin a word."""
    return [f"{'' if i % 4 == 3 else '▁'}{'abcdefghijklmnop'[i % 16]}{i:x}" for i in range(count)]


def make_tokens(dictionary, rows, length, seed):
    """``[rows, length]`` ids by Zipf's law, ``<s>`` first."""
    size = len(dictionary) - dictionary.nspecial - 1  # the last is <mask>
    law = 1.0 / np.arange(1, size + 1)
    ids = np.random.RandomState(seed).choice(size, size=(rows, length), p=law / law.sum()) + dictionary.nspecial
    ids[:, 0] = dictionary.bos()
    return ids


def make_phrases(dictionary, symbols, tokens, count):
    """Half from the rows that are measured or from others of their kind, half of random words; lengths as in the
    paper."""
    rng = random.Random(1)
    texts = [words_of(row[1:].tolist(), symbols)[0] for row in tokens]
    vocabulary = [symbol[1:] for symbol in symbols[dictionary.nspecial :] if symbol[0] == "▁"]
    phrases = set()
    while len(phrases) < count:
        number = rng.choices((2, 3, 4, 5), (50, 25, 12.5, 12.5))[0]
        if len(phrases) % 2:
            words = rng.choice(texts)
            begin = rng.randrange(len(words) - number)
            phrases.add(" ".join(words[begin : begin + number]))
        else:
            phrases.add(" ".join(rng.choices(vocabulary, k=number)))
    return phrases


class Rows(torch.utils.data.Dataset):
    def __init__(self, tokens):
        self.tokens, self.sizes = torch.from_numpy(tokens), np.full(len(tokens), tokens.shape[1])

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index]


def fairseq_pipeline(folder, dictionary, tokens):
    """fairseq's own task on the same rows: a function from indices to a batch."""
    builder = indexed_dataset.make_builder(str(folder / "train.bin"), "mmap", vocab_size=len(dictionary))
    for row in tokens:
        builder.add_item(torch.from_numpy(row[1:]))
    builder.finalize(str(folder / "train.idx"))
    options = dict(mask_prob=RATE, random_token_prob=0.0, leave_unmasked_prob=0.0, seed=1)
    task = MaskedLMTask(MaskedLMConfig(data=str(folder), tokens_per_sample=tokens.shape[1], **options), dictionary)
    task.load_dataset("train")
    dataset = task.datasets["train"]
    return lambda batch: dataset.collater([dataset[int(i)] for i in batch])


def fairseq_masking(dictionary, tokens):
    source, target = MaskTokensDataset.apply_mask(
        Rows(tokens), dictionary, pad_idx=dictionary.pad(), mask_idx=dictionary.index("<mask>"), seed=1,
        mask_prob=RATE, random_token_prob=0.0, leave_unmasked_prob=0.0,
    )  # fmt: skip
    return lambda batch: [(source[int(i)], target[int(i)]) for i in batch]


def our_masking(planner, tokens):
    lengths, rates = torch.full((BATCH,), tokens.shape[1]), Rates(RATE, RATE)
    pad, mask = planner.vocabulary.pad, planner.vocabulary.mask

    def run(batch):
        rows = tokens[batch]
        plan = planner.draw(rows, SequenceDraws(1, 1, batch))
        parts = {name: None if v is None else torch.from_numpy(v) for name, v in plan._asdict().items()}
        sample = {"id": torch.from_numpy(batch), "nsentences": BATCH, "ntokens": rows.size, "mask_plan": parts}
        sample["net_input"] = {"src_tokens": torch.from_numpy(rows), "src_lengths": lengths}
        return mask_sample(sample, rates, pad, mask)

    return run


def measure(runs, batches, tokens, rounds):
    """Tokens per second of processor time (one thread; other programs on the machine do not count) of every function,
    measured in turns; a fast one several times a turn."""
    times = {name: [] for name in runs}
    for number in range(rounds + 1):
        batch = batches[number % len(batches)]
        for name, run in runs.items():
            spent = 0.0
            while spent < 0.02:
                begin = time.process_time()
                run(batch)
                spent += time.process_time() - begin
                if number:  # the first round warms up
                    times[name].append(time.process_time() - begin)
    return {name: tokens / statistics.median(found) for name, found in times.items()}


def load_costs(path):
    """Seconds and megabytes of loading the list, first without a cache, then with one."""
    begin = time.perf_counter()
    load_phrases(path)
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    table = load_phrases(path)
    size = sum(array.nbytes for array in (table.table, table.begins, table.bitmap))
    return first, time.perf_counter() - begin, size / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--vocab", type=int, default=30000, help="pieces in the dictionary")
    parser.add_argument("--phrases", type=int, default=800_000)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        symbols = make_symbols(args.vocab)
        (folder / "dict.txt").write_text("".join(f"{s} {args.vocab - i}\n" for i, s in enumerate(symbols)), "utf-8")
        dictionary = Dictionary.load(str(folder / "dict.txt"))
        dictionary.add_symbol("<mask>")
        symbols = dictionary.symbols
        tokens = make_tokens(dictionary, args.rows, args.length, seed=0)
        listed = make_phrases(dictionary, symbols, make_tokens(dictionary, 8 * args.rows, args.length, 0), args.phrases)
        path = folder / "phrases.txt"
        path.write_text("\n".join(sorted(listed)) + "\n", encoding="utf-8")
        first, second, size = load_costs(str(path))

        vocabulary = build_vocabulary(dictionary, False, None)
        vocabulary.find_word_begins = lambda: np.array([s[0] in "▁<" for s in symbols])
        vocabulary.find_pieces = lambda: [s.lstrip("▁").encode() if s[0] != "<" else b"" for s in symbols]
        options = Namespace(
            span_geometric_p=0.2, span_max_length=10, span_unit="word", pmi_vocab=str(path), pmi_match_case=False, pmi_unit="word"
        )
        by_token = Namespace(**{**vars(options), "span_unit": "token"})
        span, pmi = build_masker("span", options, vocabulary), build_masker("pmi", options, vocabulary)
        law, budget = span_length_distribution(0.2, 10).tolist(), round(RATE * (args.length - 1))
        tuples = {tuple(phrase.split()) for phrase in listed}
        lists = [row.tolist() for row in tokens]
        joined = [words_of(row[1:], symbols)[0] for row in lists]
        maskable, begins = vocabulary.maskable, vocabulary.find_word_begins().tolist()
        mask, pad = vocabulary.mask, vocabulary.pad

        def plain_span(numpy):
            return lambda b: spanbert([lists[i] for i in b], begins, budget, make_draws(law, numpy), mask, pad)

        def units(masker):
            return lambda b: masker.begin_units(tokens[b], maskable[tokens[b]], SequenceDraws(1, 1, b))

        runs = {
            "fairseq masked_lm, uniform, data set to batch": fairseq_pipeline(folder, dictionary, tokens),
            "fairseq masked_lm, uniform, masking alone": fairseq_masking(dictionary, tokens),
            "SpanBERT's way, plain Python": plain_span(numpy=True),
            "  its lengths and anchors from random": plain_span(numpy=False),
            "PMI, plain Python, set of tuples": lambda b: pmi_plain([lists[i] for i in b], symbols, tuples, RATE, mask, pad),
            "  its scan alone, words joined before": lambda b: [scan(joined[i], tuples) for i in b],
            "ours: span, words": our_masking(Planner(span), tokens),
            "ours: span, tokens": our_masking(Planner(build_masker("span", by_token, vocabulary)), tokens),
            "ours: pmi": our_masking(Planner(pmi), tokens),
            "  ours: span, units alone": units(span),
            "  ours: pmi, units alone": units(pmi),
        }
        batches = [np.arange(i, i + BATCH) for i in range(0, args.rows - BATCH + 1, BATCH)]
        speed = measure(runs, batches, BATCH * args.length, args.rounds)
        found = sum(b - a > 1 for words in joined for a, b in scan(words, tuples))
    names = list(runs)
    print(f"rows of {args.length} tokens in batches of {BATCH}, dictionary of {args.vocab}, rate {RATE}, [MASK] only")
    print(f"{len(listed)} phrases, {found / args.rows:.1f} of them in a row\n")
    print("| | M tokens/s | times fairseq (data set to batch) | times plain span | times plain PMI | times scan |")
    print("|---|---|---|---|---|---|")
    bases = (names[0], names[2], names[4], names[5])
    for name in names:
        ratios = " | ".join(f"{speed[name] / speed[base]:.1f}" for base in bases)
        print(f"| {name} | {speed[name] / 1e6:.2f} | {ratios} |")
    print(f"\nloading the list: {first:.2f} s without a cache, {second:.3f} s with it, {size:.1f} MiB mapped once")


if __name__ == "__main__":
    main()
