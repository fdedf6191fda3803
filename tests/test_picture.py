"""The picture in the README is what its script draws, and the script draws what the maskers do."""

import importlib.util
import sys
import xml.etree.ElementTree as ET

import harness


def test_the_picture_is_what_the_script_draws(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("make_picture", harness.ROOT / "docs" / "make_picture.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    drawn = script.draw()
    assert drawn == (harness.ROOT / "docs" / "maskers.svg").read_text(encoding="utf-8"), (
        "run python docs/make_picture.py, look at docs/maskers.svg, and commit it"
    )
    # the same pieces in every row: one for each masker and rate, one for each copy of decoupled rates
    words = [text.text for text in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text") if text.get("textLength")]
    pieces = [piece.lstrip("_") for sentence in script.SENTENCES for piece in sentence.split()]
    assert words == pieces * (4 * 2 + 1 + 2)
