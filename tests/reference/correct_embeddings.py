"""The source's formula, entry by entry."""


def correct_by_loop(weight, mask, m, p_mask, p_same, p_random, rows):
    """*Shape:* ``weight`` is a list of V lists of C numbers; ``rows`` the indices that are corrected."""
    size, width = len(weight), len(weight[0])
    mean = [sum(weight[i][c] for i in range(size)) / size for c in range(width)]
    out = [list(row) for row in weight]
    for i in rows:
        for c in range(width):
            replaced = p_mask * weight[mask][c] + p_same * weight[i][c] + p_random * mean[c]
            out[i][c] = (1 - m) * weight[i][c] + m * replaced
    return out
