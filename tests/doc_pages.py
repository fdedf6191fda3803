"""Reading the project's Markdown pages: blocks of code, the commands in them, links and headings."""

import re
import shlex
from pathlib import Path
from typing import Dict, List, NamedTuple, Set

import harness
from markdown_it import MarkdownIt

# what .gitignore lists: made by running things
_MADE = {"build", "dist", "outputs", "multirun", "checkpoints", "quickstart-run"}
_PARSER = MarkdownIt("commonmark").enable("table")


class Block(NamedTuple):
    """A block of code: its page, its line there, the language after the fence ("indented" without one), its text."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(harness.ROOT)}:{self.line}"


def find_pages() -> List[Path]:
    """All pages of the project, sorted."""
    found = []
    for path in harness.ROOT.rglob("*.md"):
        folders = path.relative_to(harness.ROOT).parts[:-1]
        if not any(part.startswith(".") or part in _MADE for part in folders):
            found.append(path)
    return sorted(found)


def find_blocks(page: Path, *languages: str) -> List[Block]:
    """The blocks of a page, of these languages or of all."""
    found = []
    for token in _PARSER.parse(page.read_text(encoding="utf-8")):
        if token.type in ("fence", "code_block"):
            language = (token.info.split() or [""])[0] if token.type == "fence" else "indented"
            if not languages or language in languages:
                found.append(Block(page, token.map[0] + 1, language, token.content))
    return found


def find_commands(text: str) -> List[List[str]]:
    """The commands of a block of shell, each as its words.

    Lines that end in a backslash are joined, comments and redirections left out; pipes, ``&&`` and ``;`` part commands.
    Values of variables set in the block are put in; a loop counts once, with its first value.
    """
    commands: List[List[str]] = []
    values: Dict[str, str] = {}
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words: List[str] = []
        for word in [*lexer, ";"]:
            if words and words[-1] in (">", ">>", "<"):
                words.pop()
            elif word in (";", "|", "&&", "||", "&"):
                commands += _one_command(words, values)
                words = []
            else:
                words.append(re.sub(r"\$\{?(\w+)\}?", lambda found: values.get(found[1], found[0]), word))
    return commands


def _one_command(words: List[str], values: Dict[str, str]) -> List[List[str]]:
    while words and words[0] in ("do", "then", "else", "export"):
        words = words[1:]
    if words[:1] == ["for"]:
        values[words[1]] = words[3]
        return []
    while words and re.match(r"\w+=", words[0]):
        name, value = words[0].split("=", 1)
        values[name] = value
        words = words[1:]
    return [] if not words or words[0] in ("done", "fi") else [words]


def find_links(page: Path) -> Set[str]:
    """Targets of links and pictures."""
    return {
        child.attrs[name]
        for token in _PARSER.parse(page.read_text(encoding="utf-8"))
        for child in token.children or []
        for name in ("href", "src")
        if name in child.attrs
    } | set(re.findall(r'(?:href|src|srcset)="([^"]+)"', page.read_text(encoding="utf-8")))


def find_anchors(page: Path) -> Set[str]:
    """What GitHub lets links to headings of this page end in."""
    anchors: Set[str] = set()
    tokens = _PARSER.parse(page.read_text(encoding="utf-8"))
    for opening, inline in zip(tokens, tokens[1:]):
        if opening.type == "heading_open":
            text = "".join(child.content for child in inline.children or [])
            anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            number = sum(1 for known in anchors if re.fullmatch(re.escape(anchor) + r"(-\d+)?", known))
            anchors.add(f"{anchor}-{number}" if number else anchor)
    return anchors


def find_code_words(page: Path) -> Set[str]:
    """What stands between single backticks."""
    return {
        child.content
        for token in _PARSER.parse(page.read_text(encoding="utf-8"))
        for child in token.children or []
        if child.type == "code_inline"
    }


def all_blocks(*languages: str) -> List[Block]:
    """The blocks of all pages, of these languages or of all."""
    return [block for page in find_pages() for block in find_blocks(page, *languages)]
