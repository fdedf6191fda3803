"""The commands that READMEs, help texts and scripts of the recipes show are commands that the recipes take."""

import importlib.util
import re
import shlex

import harness
import pytest

EXAMPLES = harness.ROOT / "examples"
PAGES = sorted([*EXAMPLES.glob("*/README.md"), *EXAMPLES.glob("*/*.py"), *EXAMPLES.glob("*/run.sh")])
# given on top, so that nothing has to be there and nothing is run
DRY = {
    "finetune/prepare.py": ["--dry-run"],
    "finetune/run.py": ["--dry-run", "--arch-options", "--arch roberta_base"],
    "finetune/benchmark.py": ["--dry-run", "--arch-options", "--arch roberta_base"],
    "squad/run.py": ["--dry-run"],
    "ablations/run.py": ["--dry-run"],
    "pretrain_24h/run.sh": ["--dry-run"],
}
CLUE = {
    "TNEWS": '{"sentence": "a", "label": "1"}',
    "CLUEWSC2020": '{"text": "ab", "label": "true", "target": {"span1_index": 0, "span1_text": "a", "span2_index": 1, '
    '"span2_text": "b"}}',
    "CSL": '{"keyword": ["a"], "abst": "b", "label": "1"}',
}


def commands():
    """Every command of a page that calls one of the recipes."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\\\n", " ").replace("\\\n", " ")
        found = re.findall(r"^ *(?:python|bash) examples/(\w+/\w+\.(?:py|sh))(.*)$", text, re.MULTILINE)
        for number, (script, rest) in enumerate(found):
            if script in DRY:
                yield pytest.param(script, rest, id=f"{page.relative_to(EXAMPLES)}-{number}")


def load(path):
    spec = importlib.util.spec_from_file_location("example_" + "_".join(path.parts[-2:]).replace(".py", ""), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("script, rest", commands())
def test_command_is_taken(script, rest, tmp_path, monkeypatch, capsys):
    words = [word for word in shlex.split(rest.replace("$run", "uniform-15"), comments=True) if word != "..."]
    if script == "finetune/benchmark.py" and "--data" not in words:  # one of which only the end is shown
        words[1:1] = "--data GLUE --out OUT --checkpoint model.pt --dict dict.txt --sentencepiece-model sp.model".split()
    at = words.index("--") if "--" in words else len(words)
    words[at:at] = [word for word in DRY[script] if word != "--dry-run" or "--dry-run" not in words]
    monkeypatch.chdir(tmp_path)
    for task in ("TNEWS", "IFLYTEK", "AFQMC", "CMNLI", "OCNLI", "CSL", "CLUEWSC2020"):  # their settings are in epochs
        (tmp_path / "CLUE" / task).mkdir(parents=True)
        line = CLUE.get(task, '{"sentence": "a", "sentence1": "a", "sentence2": "b", "label": "1"}')
        for split in ("train", "dev"):
            (tmp_path / "CLUE" / task / f"{split}.json").write_text(line)
    if script.endswith(".sh"):
        assert "fairseq-train" in harness.run(["bash", EXAMPLES / script, *words], check=True).stdout
    else:
        load(EXAMPLES / script).main(words)
        shown = capsys.readouterr().out
        assert re.search(r"fairseq-train|fairseq_cli|squad/run.py|^rates: ", shown)


def test_pages_are_found():
    found = [param.values[0] for param in commands()]
    assert set(found) == set(DRY) and len(found) > 30
