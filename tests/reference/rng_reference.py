"""Keyed draws with Python integers, one at a time."""

FULL = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z, inject=0):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & FULL
    z ^= inject
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & FULL
    return z ^ (z >> 31)


def stream_word(name):
    word = 0xCBF29CE484222325
    for byte in name.encode():
        word = ((word ^ byte) * 0x100000001B3) & FULL
    return word


def key(stream, *words):
    lanes = []
    for state in (0x243F6A8885A308D3, 0x13198A2E03707344):
        for word in (stream_word(stream),) + words:
            state = (mix(state ^ mix((word + GOLDEN) & FULL)) + GOLDEN) & FULL
        lanes.append(state)
    return lanes


def draw(stream, words, position):
    a, b = key(stream, *[word & FULL for word in words])
    return mix((a + (position + 1) * GOLDEN) & FULL, inject=b)
