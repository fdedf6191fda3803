"""The mask plan of one row by loops: rank units by key, cut at a budget (DESIGN of the windows: see plan.py)."""

import math


def units_of(starts, maskable):
    """Lists of positions that stand or fall together."""
    units, current = [], None
    for position, (start, inside) in enumerate(zip(starts, maskable)):
        if not inside:
            current = None
        elif start or current is None:
            current = [position]
            units.append(current)
        else:
            current.append(position)
    return units


def ranked(units, keys):
    """Positions in rank order; ``keys[p]`` is the key of the unit that begins at ``p`` (ties: by position)."""
    return sorted(units, key=lambda unit: (keys[unit[0]], unit[0]))


def cut(units_in_order, x, budget, u_row, u_unit):
    """B(x), the number of ranks below the cut.

    ``u_row`` is in [0, 1); ``u_unit[p]`` belongs to the unit that begins at ``p``.
    """
    n = sum(map(len, units_in_order))
    if budget == "exact":
        return math.floor(x * n + u_row)
    s = 0
    for unit in units_in_order:
        e = s + len(unit)
        if s <= x * n < e:
            # taken with probability (x n - s) / (e - s)
            return e if 1.0 - u_unit[unit[0]] <= (x * n - s) / (e - s) else s
        s = e
    return n


def copies(corruption, prediction):
    return max(1, math.ceil(round(prediction / corruption, 6)))


def masks(units_in_order, corruption, prediction, budget, u_row, u_unit):
    """``[(corrupted, predicted)]``, sets of positions, one pair for each copy."""
    order = [position for unit in units_in_order for position in unit]
    n = len(order)

    def at(x):
        return cut(units_in_order, x, budget, u_row, u_unit)

    found = []
    for copy in range(copies(corruption, prediction)):
        low, high = copy * corruption, (copy + 1) * corruption
        ranks = set(range(at(low), min(n, at(high)) if high < 1 else n))
        wrapped = set(range(at(high - 1))) if high > 1 + 1e-12 else set()
        predicted = {rank for rank in ranks if rank < (at(prediction) if prediction < 1 else n)}
        found.append(({order[rank] for rank in ranks | wrapped}, {order[rank] for rank in predicted}))
    return found
