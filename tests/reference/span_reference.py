"""Spans of one row by loops, and what their law implies on a short row, computed exactly."""

from fractions import Fraction
from itertools import permutations
from math import factorial


def law(p, longest):
    weights = [(1 - p) ** (length - 1) for length in range(1, longest + 1)]
    return [weight / sum(weights) for weight in weights]


def draw(probabilities, u):
    """The length (from 1) whose interval of [0, 1) holds u."""
    total = 0.0
    for length, probability in enumerate(probabilities[:-1], 1):
        total += probability
        if u < total:
            return length
    return len(probabilities)


def starts(atoms, maskable, probabilities, u):
    """Positions where runs begin; ``u[j]`` decides the length of run j."""
    longest = len(probabilities)
    mean = sum(length * q for length, q in enumerate(probabilities, 1))
    first = [sum(probabilities[r - 1 :]) / mean for r in range(1, longest + 1)]
    found, run, left = [], 0, draw(first, u[0])
    for position, (begins, inside) in enumerate(zip(atoms, maskable)):
        after_gap = inside and (position == 0 or not maskable[position - 1])
        if not inside or not (begins or after_gap):
            continue
        if left == 0:
            run += 1
            left = draw(probabilities, u[run])
            found.append(position)
        elif after_gap:
            found.append(position)
        left -= 1
    return found


def tilings(n, probabilities):
    """Every way to tile a row of n atoms with runs, and its probability: a window on an endless stationary tiling."""
    longest = len(probabilities)
    mean = sum(length * q for length, q in enumerate(probabilities, 1))

    def tail(r):
        return sum(probabilities[r - 1 :], Fraction(0))

    def go_on(left):
        """Tilings of ``left`` atoms that begin where a run does."""
        if left == 0:
            yield [], Fraction(1)
            return
        for length in range(1, min(longest, left - 1) + 1):
            for rest, q in go_on(left - length):
                yield [length] + rest, probabilities[length - 1] * q
        if left <= longest:
            yield [left], tail(left)  # the row's end cuts it, or it ends just there

    for first in range(1, min(longest, n - 1) + 1):
        for rest, q in go_on(n - first):
            yield [first] + rest, tail(first) / mean * q
    if n <= longest:
        yield [n], sum((tail(r) for r in range(n, longest + 1)), Fraction(0)) / mean


def selection_probability(lengths, cut):
    """For each position of a tiled row, the probability that it is among the first ``cut`` when units are ordered at
    random, and the unit at the cut keeps its first or its last tokens, half and half."""
    n, units = sum(lengths), len(lengths)
    first = [sum(lengths[:i]) for i in range(units)]
    counts = [0] * n
    for order in permutations(range(units)):
        for step in (1, -1):
            taken = [p for unit in order for p in list(range(first[unit], first[unit] + lengths[unit]))[::step]]
            for position in taken[:cut]:
                counts[position] += 1
    return [Fraction(count, 2 * factorial(units)) for count in counts]


def position_probability(n, probabilities, cut):
    """The probability that each of n positions is selected: the whole effect of a row's edges, exactly."""
    total = [Fraction(0)] * n
    for lengths, q in tilings(n, probabilities):
        for position, share in enumerate(selection_probability(lengths, cut)):
            total[position] += q * share
    return total
