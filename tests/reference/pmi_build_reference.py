"""PMI vocabularies by plain loops over every n-gram, and phrase statistics by trying everything."""

import math
import unicodedata
from collections import Counter
from fractions import Fraction


def split_words(line, keep_case=False):
    """Segments of words: lists that no n-gram leaves."""
    segments = [[]]
    for raw in (line if keep_case else line.lower()).split():
        kept = [i for i, c in enumerate(raw) if unicodedata.category(c)[0] not in "PSC"]
        if not kept:
            segments.append([])
            continue
        if kept[0] > 0:
            segments.append([])
        segments[-1].append(raw[kept[0] : kept[-1] + 1])
        if kept[-1] < len(raw) - 1:
            segments.append([])
    return segments


def count_ngrams(lines, keep_case=False):
    """``counts[n]`` is a Counter of tuples of n words."""
    counts = {n: Counter() for n in range(1, 6)}
    for line in lines:
        for words in split_words(line, keep_case):
            for n in counts:
                for i in range(len(words) - n + 1):
                    counts[n][tuple(words[i : i + n])] += 1
    return counts


def cut(phrase):
    """All ways to write a phrase as parts, the phrase itself included."""
    if not phrase:
        yield []
    for i in range(1, len(phrase) + 1):
        for rest in cut(phrase[i:]):
            yield [phrase[:i]] + rest


def score(phrase, counts, power=1):
    """``min over segmentations of log(p^power / product of the parts' p)``, the quotients exact."""

    def p(part):
        return Fraction(counts[len(part)][part], sum(counts[len(part)].values()))

    quotients = []
    for parts in cut(phrase):
        if len(parts) > 1:
            product = Fraction(1)
            for part in parts:
                product *= p(part)
            quotients.append(p(phrase) ** power / product)
    least = min(quotients)
    return math.log(least.numerator) - math.log(least.denominator)


def build(lines, min_count, size, power=1):
    """Lines of a list, in order."""
    counts = count_ngrams(lines)
    ranked = {}
    for n in range(2, 6):
        scored = []
        for phrase, count in counts[n].items():
            if count >= min_count:
                text = " ".join(phrase)
                scored.append((-round(score(phrase, counts, power), 6), text.encode(), text, count))
        ranked[n] = sorted(scored)
    out = []
    for slot in range(size):
        n = [2, 3, 2, 4, 2, 3, 2, 5][slot % 8]
        if ranked[n]:
            minus, _, text, count = ranked[n].pop(0)
            out.append(f"{text}\t{-minus + 0.0:.6f}\t{count}")
    return out


def covered_words(lines, phrases):
    """Number of words inside a phrase, and of words."""
    inside = total = 0
    for line in lines:
        for words in split_words(line):
            hit = set()
            for i in range(len(words)):
                for end in range(i + 2, min(len(words), i + 5) + 1):
                    if " ".join(words[i:end]) in phrases:
                        hit |= set(range(i, end))
            inside, total = inside + len(hit), total + len(words)
    return inside, total


def occurrences(words, phrases):
    """``(first, end)`` of the phrases in a list of words that lie inside no other one."""
    every = [(i, end) for i in range(len(words)) for end in range(i + 2, len(words) + 1) if " ".join(words[i:end]) in phrases]
    return [a for a in every if not any(b != a and b[0] <= a[0] and a[1] <= b[1] for b in every)]
