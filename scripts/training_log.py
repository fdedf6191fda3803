"""The log of the quickstart's training: shown while it is written, and what it says at the end."""

import math
import re
import time


def show_log(process, path, begin):
    """Print what a training writes to its log, from byte ``begin``, until it ends."""
    with open(path, encoding="utf-8", errors="replace") as log:
        log.seek(begin)
        half = ""
        while True:
            ended = process.poll() is not None
            line = log.readline()
            if not line:
                if ended:
                    return
                time.sleep(0.2)
                continue
            half += line
            if half.endswith("\n"):
                shown = re.search(r"\| (train_inner|valid) \| (.*)", half)
                if shown:
                    print("  " + shown.group(2).replace("valid on 'valid' subset | ", "validation: "), flush=True)
                half = ""


def report(out, corruption, prediction):
    """What the log says; a run that was interrupted has its parts in the same log."""
    text = (out / "train.log").read_text()
    updates = {int(n): line for line, n in re.findall(r"(train_inner \| .*?num_updates=(\d+).*)", text)}
    last = updates[max(updates)]
    found = re.findall(r"valid on 'valid' subset \| loss ([\d.]+).*?ppl ([\d.]+).*?num_updates (\d+)", text)
    validations = {int(update): (loss, ppl) for loss, ppl, update in found}

    def value(name):
        return re.search(rf"\b{name}=([\d.e+-]+)", last).group(1)

    print(f"asked: corruption rate {corruption}, prediction rate {prediction}")
    rates = f"corruption rate {value('corruption_rate')}, prediction rate {value('prediction_rate')}"
    print(f"measured at update {max(updates)}: {rates}")
    for update, (loss, ppl) in sorted(validations.items()):
        print(f"validation at update {update}: {loss} bits a predicted token, perplexity {ppl}")
    vocabulary = len((out / "data-bin" / "dict.txt").read_text().splitlines())
    print(f"(guessing among {vocabulary:,} pieces: {math.log2(vocabulary):.2f} bits)")
    print(f"speed at the end: {float(value('wps')):,.0f} tokens/s")
