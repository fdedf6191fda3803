"""Links between pages, to headings and to files; addresses elsewhere are checked for their form only, so that the tests
need no network."""

import re

import doc_pages
import harness
import pytest

PAGES = doc_pages.find_pages()
FOLDERS = ("fairseq_maskplugins", "docs", "examples", "benchmarks", "scripts", "tests")
OF_FAIRSEQ = "examples/roberta/"


def name(page):
    return str(page.relative_to(harness.ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    wrong = []
    for link in doc_pages.find_links(page):
        if re.match(r"[a-z]+:", link):
            if not re.fullmatch(r"https://[\w.-]+\.[a-z]+(/[\w./%?=&#~+-]*)?", link):
                wrong.append(f"{link}: not the form of an address on the web (https)")
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or harness.ROOT not in (target, *target.parents):
            wrong.append(f"{link}: there is no such file")
        elif anchor and anchor not in doc_pages.find_anchors(target):
            wrong.append(f"{link}: {name(target)} has no such heading, but {sorted(doc_pages.find_anchors(target))}")
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_named_in_the_text_exist(page):
    """`tests/test_docs.py` in backticks, from the project's root."""
    pattern = rf"({'|'.join(FOLDERS)})(/[\w.-]+)*/?"
    named = [word for word in doc_pages.find_code_words(page) if re.fullmatch(pattern, word)]
    wrong = [word for word in named if not (harness.ROOT / word).exists() and not word.startswith(OF_FAIRSEQ)]
    assert wrong == []


def test_every_page_can_be_reached():
    """From README.md, over links. Tables that runs wrote are no pages."""
    seen, todo = set(), [harness.ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page not in seen:
            seen.add(page)
            links = [link.partition("#")[0] for link in doc_pages.find_links(page)]
            todo += [(page.parent / link).resolve() for link in links if link.endswith(".md") and ":" not in link]
    assert [name(page) for page in PAGES if page not in seen and page.parent.name != "results"] == []
