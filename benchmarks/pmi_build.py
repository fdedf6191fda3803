"""Counting n-grams: ``maskplugins pmi build`` beside a plain ``collections.Counter``, on the same text.

    python benchmarks/pmi_build.py --text FILE... [--sizes 10 100] [--large 400 --memory-limit 512MB]

For every size (MB) the text is repeated with variation: from its second copy on, one word in ten is replaced by
another word of the text, so that new n-grams keep coming as they do in real text. Every run is a process of its own,
because what is compared is its peak memory; both runs of a size follow each other. Ours goes all the way to a written
list, the Counter only to its counts. ``--large`` runs ours alone, with less memory than the n-grams take. The Counter
gets at most ``--counter-memory``; where that is not enough the table says so. Nothing here asserts: speed is read, not
tested.
"""

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

VARIATION = 0.1
MB = 1 << 20


def memory(kind):
    """Resident memory of this process in MB: "VmRSS" now, "VmHWM" at its peak (getrusage would inherit a parent's)."""
    for line in open("/proc/self/status"):
        if line.startswith(kind):
            return int(line.split()[1]) / 1024
    raise SystemExit("this needs Linux's /proc")


def repeat_text(files, size, out):
    """Write ``size`` bytes of text; returns the number of words."""
    import numpy as np

    from fairseq_maskplugins.pmi_build.text import read_batches
    from fairseq_maskplugins.rng import bits, make_keys, to_uniform

    written = words = 0
    with open(out, "w", encoding="utf-8") as file:
        for copy in itertools.count():
            for number, path in enumerate(files):
                for part, text in enumerate(read_batches(path)):
                    lines = [line.split() for line in text.split("\n")]
                    pool = [word for line in lines for word in line]
                    keys = make_keys((copy, number, part), "benchmark")
                    u = to_uniform(bits(keys, np.arange(2 * len(pool)))).tolist()
                    position = 0
                    for line in lines:
                        if copy:
                            for i in range(len(line)):
                                if u[2 * position] < VARIATION:
                                    line[i] = pool[int(u[2 * position + 1] * len(pool))]
                                position += 1
                        written += file.write(" ".join(line) + "\n")
                        words += len(line)
                        if written >= size:
                            return words
            if not written:
                raise SystemExit("the text is empty")


def run_counter(path, limit):
    """Count n-grams of 1 to 5 words with tuples in Counters, and keep those that occur 11 times."""
    import string

    base, start, cpu = memory("VmRSS"), time.perf_counter(), time.process_time()
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    counts = [Counter() for _ in range(5)]
    done = 0
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                words = [word.strip(string.punctuation) for word in line.lower().split()]
                words = [word for word in words if word]
                done += len(words)
                for n, counter in enumerate(counts, 1):
                    counter.update(zip(*(words[i:] for i in range(n))))
        kept = sum(number >= 11 for counter in counts[1:] for number in counter.values())
    except MemoryError:
        kept = None
    return report(done, kept, base, start, cpu)


def run_ours(path, folder, memory_limit, threads):
    import logging

    logging.disable(logging.WARNING)
    from fairseq_maskplugins.pmi_build import build_list, write_list

    base, start, cpu = memory("VmRSS"), time.perf_counter(), time.process_time()
    built = build_list([path], memory_limit=memory_limit, temp_dir=folder, threads=threads)
    write_list(os.path.join(folder, "list.txt"), built.phrases)
    return report(built.words, sum(built.candidates.values()), base, start, cpu)


def report(words, kept, base, start, cpu):
    """What a child tells; ``kept``: n-grams of 2 to 5 words with 11 occurrences, or None where memory ran out."""
    times = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
    return {"words": words, "kept": kept, "base": base, "peak": memory("VmHWM"), **times}


def measure(kind, path, folder, args):
    command = [sys.executable, __file__, "--child", kind, path, folder, args.memory_limit, str(args.threads)]
    done = subprocess.run([*command, str(args.counter_memory)], stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def show(size, name, result, beside=None):
    speed = result["words"] / result["seconds"]
    extra = result["peak"] - result["base"]
    line = f"{size:>5} MB  {name:<20}{result['words'] / 1e6:>7.1f} M words"
    line += f"{result['seconds']:>8.1f} s"
    line += f" ({result['cpu']:.1f} s of CPU){speed / 1e6:>6.2f} M words/s, {extra:.0f} MB on top of {result['base']:.0f}"
    if result["kept"] is None:
        line += ", OUT OF MEMORY there"
    elif beside is not None and beside["kept"] is not None:
        line += f": speed x{speed * beside['seconds'] / beside['words']:.1f}"
        line += f", memory x{extra / (beside['peak'] - beside['base']):.2f}"
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", required=True, help="UTF-8 files, plain, gzip or zstd")
    parser.add_argument("--sizes", type=int, nargs="*", default=[10, 100], help="MB of text for both (default: 10 100)")
    parser.add_argument("--large", type=int, default=0, help="MB of text for ours alone; 0 leaves it out")
    parser.add_argument("--memory-limit", default="512MB", help="ours (default: 512MB)")
    parser.add_argument("--counter-memory", type=int, default=8192, help="MB that the Counter may use (default: 8192)")
    parser.add_argument("--threads", type=int, default=1, help="ours (default: 1)")
    parser.add_argument("--temp-dir", default=tempfile.gettempdir())
    args = parser.parse_args()
    for size in [*args.sizes, *([args.large] if args.large else [])]:
        with tempfile.TemporaryDirectory(dir=args.temp_dir) as folder:
            path = os.path.join(folder, "text")
            repeat_text(args.text, size * MB, path)
            counter = None
            if size != args.large:
                counter = measure("counter", path, folder, args)
                show(size, "Counter", counter)
            show(size, f"pmi build, {args.memory_limit}", measure("ours", path, folder, args), counter)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        kind, path, folder, limit, threads, most = sys.argv[2:]
        ours = kind == "ours"
        print(json.dumps(run_ours(path, folder, limit, int(threads)) if ours else run_counter(path, int(most) * MB)))
    else:
        main()
