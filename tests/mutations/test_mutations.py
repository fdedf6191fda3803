"""Mutants stay mutants: what they edit is there, and the table lists them; the nightly run shows that each is caught."""

import re
from pathlib import Path

import pytest
from mutants import MUTANTS
from mutate import CAUGHT, check, judge


def test_every_mutant_can_be_made():
    problems = [problem for problem in map(check, MUTANTS) if problem]
    assert not problems
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30


def test_the_table_lists_the_mutants():
    table = re.findall(r"^\| (.+?) \| `(.+?)` \| (.+?) \|$", (Path(__file__).parent / "README.md").read_text(), re.M)
    assert table == [(m.name, m.file, ", ".join(f"`{test}`" for test in m.tests)) for m in MUTANTS]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_tests_notice(mutant):
    verdict, detail = judge(mutant)
    assert verdict == CAUGHT, detail
