"""Span and PMI masking in plain Python: what the maskers are measured against in ``masking_span_pmi.py``."""

import random

import numpy as np

LONGEST = 5  # words of a phrase


def words_of(row, symbols):
    """Words of a row, and where each begins."""
    words, begins = [], []
    for position, token in enumerate(row):
        symbol = symbols[token]
        if symbol[0] == "▁" or not words:
            words.append(symbol.lstrip("▁"))
            begins.append(position)
        else:
            words[-1] += symbol
    return words, begins


def make_draws(law, numpy):
    """Draws of a span's length and of an anchor below n: by numpy's ``choice``, as SpanBERT's published code draws, or
    by Python's own generator, which is faster for single numbers."""
    lengths, cumulative = range(1, len(law) + 1), np.cumsum(law).tolist()
    if numpy:
        rng = np.random.RandomState(1)
        return lambda: rng.choice(lengths, p=law), rng.choice
    rng = random.Random(1)
    return lambda: rng.choices(lengths, cum_weights=cumulative)[0], lambda n: int(rng.random() * n)


def spanbert(rows, begins, budget, draws, mask, pad):
    """Plain Python: an anchor anywhere, moved to its word's start, and a number of words drawn by the law, until enough
    tokens are masked; source and target of every row."""
    (draw_length, draw_anchor), out = draws, []
    for row in rows:
        n, masked = len(row), set()
        while len(masked) < budget:
            words = draw_length()
            position = 1 + draw_anchor(n - 1)
            if position in masked:
                continue
            while position > 1 and not begins[row[position]]:
                position -= 1
            while position < n and len(masked) < budget:
                masked.add(position)
                position += 1
                if position < n and begins[row[position]]:
                    words -= 1
                    if words == 0:
                        break
        source = [mask if i in masked else token for i, token in enumerate(row)]
        target = [token if i in masked else pad for i, token in enumerate(row)]
        out.append((source, target))
    return out


def scan(words, phrases):
    """Longest match from left to right: ``(first, end)`` of the units, in words."""
    units, first = [], 0
    while first < len(words):
        for number in range(min(LONGEST, len(words) - first), 1, -1):
            if tuple(words[first : first + number]) in phrases:
                break
        else:
            number = 1
        units.append((first, first + number))
        first += number
    return units


def pmi_plain(rows, symbols, phrases, rate, mask, pad):
    """Plain Python: units in random order until enough is masked; source and target of every row."""
    rng, out = random.Random(1), []
    for row in rows:
        words, begins = words_of(row[1:], symbols)
        units = scan(words, phrases)
        rng.shuffle(units)
        begins.append(len(row) - 1)
        source, target, left = list(row), [pad] * len(row), round(rate * (len(row) - 1))
        for first, end in units:
            if left <= 0:
                break
            for position in range(begins[first] + 1, begins[end] + 1):
                source[position], target[position] = mask, row[position]
            left -= begins[end] - begins[first]
        out.append((source, target))
    return out
