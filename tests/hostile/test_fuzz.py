"""Every parser with arbitrary and with mutated input: nothing but errors of ours, whatever comes."""

import subprocess
import sys
from pathlib import Path

import files
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parsers import PARSERS, READERS, SEEDS

HERE = Path(__file__).parent
CHARACTERS = st.characters(exclude_categories=())  # with halves of surrogate pairs
TEXTS = st.text(CHARACTERS, max_size=300).map(lambda text: text.encode("utf-8", errors="surrogatepass"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(CHARACTERS, max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(CHARACTERS, max_size=12), inner, max_size=4),
    max_leaves=20,
)


def dumped(value):
    import json

    return json.dumps(value).encode("utf-8", errors="surrogatepass")


def inputs(name):
    """Bytes, text, JSON, and valid files with pieces changed."""
    seeds = st.sampled_from(SEEDS[name])
    mutated = st.builds(
        lambda seed, number: next(files.mutations(seed, 1 + number % 5, number)), seeds, st.integers(0, 10**6)
    )
    spliced = st.builds(
        lambda a, b, at: a[: at % (len(a) + 1)] + b + a[at % (len(a) + 1) :], seeds, TEXTS, st.integers(0, 10**6)
    )
    return st.one_of(st.binary(max_size=300), TEXTS, JSON.map(dumped), mutated, spliced)


def fuzz(name, examples):
    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(inputs(name))
    def run(data):
        PARSERS[name](data)

    run()


@pytest.mark.parametrize("name", PARSERS)
def test_seeds_are_valid(name):
    """The mutations start from something that is read: no error at all."""
    for seed in SEEDS[name]:
        READERS[name](seed)


@pytest.mark.parametrize("name", PARSERS)
def test_hypothesis(name):
    fuzz(name, 60)


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
def test_hypothesis_longer(name):
    fuzz(name, 3000)


def regressions():
    return sorted(path for path in (HERE / "regressions").iterdir() if path.suffix == ".bin")


@pytest.mark.parametrize("path", regressions(), ids=lambda path: path.stem)
def test_what_was_found(path):
    """Inputs that once broke a parser, by the name before the first dash."""
    PARSERS[path.name.split("-", 1)[0]](path.read_bytes())


def run_atheris(seconds, *names):
    pytest.importorskip("atheris", reason="atheris has wheels for Linux on x86-64")
    command = [sys.executable, str(HERE / "fuzz.py"), "--seconds", str(seconds), *names]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="once is enough: the first generation does it")
def test_atheris():
    run_atheris(15)


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
def test_atheris_longer(name):
    run_atheris(10, name)
