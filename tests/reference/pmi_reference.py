"""PMI masking of one row by loops over words and sets of tuples."""

import unicodedata


def is_mark(text):
    return text != "" and all(unicodedata.category(character)[0] in "PS" for character in text)


def cut_word(text):
    """``"(York),"`` to ``["(", "York", "),"]``; a word that is all punctuation, or has none at its edges, stays
    whole."""
    if is_mark(text):
        return [text]
    begin, end = 0, len(text)
    while is_mark(text[begin]):
        begin += 1
    while is_mark(text[end - 1]):
        end -= 1
    return [part for part in (text[:begin], text[begin:end], text[end:]) if part]


def read_list(lines):
    """Set of tuples of words, cut and case-folded."""
    phrases = set()
    for line in lines:
        words = [part.casefold() for word in line.split("\t")[0].split() for part in cut_word(word)]
        if len(words) > 1:
            phrases.add(tuple(words))
    return phrases


def words_of(row, maskable, begins, pieces):
    """Blocks of words; a word is ``(text, positions)``. Specials end a block; edge punctuation is a word of its own."""
    blocks, current = [], None  # a block is a list of whole words, a whole word a list of positions
    for position, inside in enumerate(maskable):
        if not inside:
            current = None
        elif current is None:
            current = [[position]]
            blocks.append(current)
        elif begins[row[position]]:
            current.append([position])
        else:
            current[-1].append(position)
    return [[word for whole in block for word in _cut_pieces(whole, row, pieces)] for block in blocks]


def _cut_pieces(positions, row, pieces):
    texts = [pieces[row[position]].decode() for position in positions]
    solid = [i for i, text in enumerate(texts) if text and not is_mark(text)]
    if not solid:
        return [("".join(texts).casefold(), positions)]
    begin, end = solid[0], solid[-1] + 1
    if all(text == "" for text in texts[:begin]):
        begin = 0
    elif texts[begin - 1] == "":
        begin -= 1
    parts = [(0, begin), (begin, end), (end, len(positions))]
    return [("".join(texts[a:b]).casefold(), positions[a:b]) for a, b in parts if a < b]


def find_matches(words, phrases, longest):
    """``(first, end)`` of the longest phrase at each word, without those that another contains."""
    found = []
    for first in range(len(words)):
        for number in range(longest, 1, -1):
            if tuple(text for text, _ in words[first : first + number]) in phrases and first + number <= len(words):
                found.append((first, first + number))
                break
    return [m for m in found if not any(o != m and o[0] <= m[0] and m[1] <= o[1] for o in found)]


def settle(matches, chance):
    """Ask matches in the order of their chance, highest first; one is in if it overlaps none that is in."""
    chosen = []
    for match in sorted(matches, key=lambda m: (-chance[m], m)):
        if all(match[1] <= other[0] or other[1] <= match[0] for other in chosen):
            chosen.append(match)
    return chosen


def starts(row, maskable, begins, pieces, phrases, longest, chance_at):
    """Set of positions where units begin; ``chance_at[p]`` belongs to the phrase whose first token is at ``p``."""
    found = set()
    for position, inside in enumerate(maskable):
        if inside and (begins[row[position]] or position == 0 or not maskable[position - 1]):
            found.add(position)
    for words in words_of(row, maskable, begins, pieces):
        matches = find_matches(words, phrases, longest)
        chance = {match: chance_at[words[match[0]][1][0]] for match in matches}
        for first, end in settle(matches, chance):
            inside = [position for _, positions in words[first:end] for position in positions]
            found.difference_update(inside)
            found.add(inside[0])
            if end < len(words):
                found.add(words[end][1][0])
    return found
