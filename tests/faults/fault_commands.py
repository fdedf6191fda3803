"""The commands that write files, each with what it writes."""

import sys
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Tuple

import harness

MAIN = [sys.executable, "-m", "fairseq_maskplugins.cli"]


class Inputs(NamedTuple):
    corpus: Path
    folder: Path

    @property
    def data(self) -> Path:
        return self.corpus / "bin"

    @property
    def bpe(self) -> List[str]:
        return ["--bpe", "sentencepiece", "--sentencepiece-model", str(self.corpus / "sp.model")]

    @property
    def checkpoint(self) -> Path:
        return self.folder / "model.pt"


class Tool(NamedTuple):
    """A command of ``maskplugins``: its arguments for inputs and an output folder, and the results it leaves there."""

    arguments: Callable[[Inputs, Path], list]
    results: Tuple[str, ...]

    def command(self, inputs: Inputs, out: Path) -> List[str]:
        return [*MAIN, *map(str, self.arguments(inputs, out))]


def _fisher(inputs: Inputs, out: Path) -> list:
    options = ["--restore-file", inputs.checkpoint, "--max-examples", 8, "--user-dir", harness.USER_DIR]
    return [
        "fisher",
        inputs.data,
        "--fisher",
        out / "values",
        "--mask",
        out / "mask",
        *options,
        *harness.TINY,
        *harness.MLM,
    ]


def _pmi(inputs: Inputs, out: Path) -> list:
    options = ["--min-count", 3, "--size", 100, "--memory-limit", "256MB", "--threads", 1, "--temp-dir", out]
    return ["pmi", "build", inputs.folder / "text.txt", "--output", out / "list.gz", *options]


def _variance(inputs: Inputs, out: Path) -> list:
    options = ["--rows", 4, "--masks", 2, "--groups", 2, "--cpu"]
    return ["variance", inputs.checkpoint, inputs.data, "--json", out / "json", "--png", out / "png", *options]


TOOLS: Dict[str, Tool] = {
    "pmi-build": Tool(_pmi, ("list.gz",)),
    "fisher": Tool(_fisher, ("values", "mask")),
    "fisher-select": Tool(
        lambda i, out: [
            "fisher",
            "select",
            "--fisher",
            i.folder / "values",
            "--reserve-p",
            0.1,
            "--mask",
            out / "mask",
        ],
        ("mask",),
    ),
    "fisher-show": Tool(lambda i, out: ["fisher", "show", "--mask", i.folder / "mask", "--png", out / "png"], ("png",)),
    "correct-embeddings": Tool(
        lambda i, out: ["correct-embeddings", i.checkpoint, out / "corrected.pt"], ("corrected.pt",)
    ),
    "export-hf": Tool(lambda i, out: ["export-hf", i.checkpoint, out / "hf"], ("hf",)),
    "import-hf": Tool(lambda i, out: ["import-hf", i.folder / "hf", out / "fairseq"], ("fairseq",)),
    "show-masks": Tool(
        lambda i, out: ["show-masks", i.data, "--measure", 50, "--rows", 2, "--html", out / "page.html"], ("page.html",)
    ),
    "variance": Tool(_variance, ("json", "png")),
}
