"""The tasks of GLUE and CLUE: how their files are read, how they are scored, and the published settings (one table).

GLUE: the settings of fairseq's ``examples/roberta/config/finetuning/*.yaml``. CLUE: those of the baselines that the benchmark's
authors published (``baselines/models_pytorch/classifier_pytorch``), in epochs.
"""

import json
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

Row = Tuple[Tuple[str, ...], str]  # texts and label


class Glue(NamedTuple):
    texts: Tuple[Any, ...]  # columns of the texts, by name where the file has a header
    label: Any
    classes: int = 2  # 1: a regression
    batch: int = 32
    lr: float = 1e-5
    updates: int = 0
    warmup: int = 0
    scores: Tuple[str, ...] = ("accuracy",)  # the first one chooses the epoch


class Clue(NamedTuple):
    texts: Tuple[str, ...]  # fields of the texts
    classes: int = 2
    batch: int = 16
    lr: float = 2e-5
    epochs: int = 3
    train: str = "train.json"
    scores: Tuple[str, ...] = ("accuracy",)


GLUE: Dict[str, Glue] = {
    "MNLI": Glue(("sentence1", "sentence2"), "gold_label", 3, 32, 1e-5, 123873, 7432),
    "QNLI": Glue(("question", "sentence"), "label", 2, 32, 1e-5, 33112, 1986),
    "QQP": Glue(("question1", "question2"), "is_duplicate", 2, 32, 1e-5, 113272, 28318, ("accuracy", "f1")),
    "RTE": Glue(("sentence1", "sentence2"), "label", 2, 16, 2e-5, 2036, 122),
    "SST-2": Glue(("sentence",), "label", 2, 32, 1e-5, 20935, 1256),
    "MRPC": Glue(("#1 String", "#2 String"), "Quality", 2, 16, 1e-5, 2296, 137, ("accuracy", "f1")),
    "CoLA": Glue((3,), 1, 2, 16, 1e-5, 5336, 320, ("mcc", "accuracy")),
    "STS-B": Glue(("sentence1", "sentence2"), "score", 1, 16, 2e-5, 3598, 214, ("pearson", "spearman")),
    # read like the others, but nobody fine-tunes on it: no settings are published
    "WNLI": Glue(("sentence1", "sentence2"), "label"),
}
CLUE: Dict[str, Clue] = {
    "TNEWS": Clue(("sentence",), 15),
    "IFLYTEK": Clue(("sentence",), 119),
    "AFQMC": Clue(("sentence1", "sentence2"), 2),
    "CMNLI": Clue(("sentence1", "sentence2"), 3, 16, 3e-5, 2),
    "OCNLI": Clue(("sentence1", "sentence2"), 3, 16, 3e-5, 2, "train.50k.json"),
    "CSL": Clue(("keyword", "abst"), 2, 8, 1e-5, 5),
    "CLUEWSC2020": Clue(("text",), 2, 16, 1e-5, 50),
}
SUITES = {"glue": [name for name, task in GLUE.items() if task.updates], "clue": list(CLUE)}


def read_glue(path: Path, task: str) -> Iterator[Row]:
    """``(texts, label)`` of a file of a GLUE task. There are no quotes in these files, only characters that look like
    them; a row without a label or with fields missing (QQP has some) is left out."""
    columns, label = GLUE[task].texts, GLUE[task].label
    if not path.is_file():
        sys.exit(f"{path}: no such file")
    with open(path, encoding="utf-8-sig", newline="\n") as file:  # MRPC's begins with a mark of its byte order
        lines = [line.rstrip("\r\n").split("\t") for line in file]
    if isinstance(label, str):
        header = lines.pop(0) if lines else []
        if not {*columns, label} <= set(header):
            sys.exit(f"{path}: the first line has no columns {', '.join(columns)}, {label}: not a file of {task}")
        columns, label = [header.index(name) for name in columns], header.index(label)
    for fields in lines:
        texts = [" ".join(fields[i].split()) for i in columns if i < len(fields)]
        value = fields[label].strip() if label < len(fields) else ""
        if value not in ("", "-") and len(texts) == len(columns) and all(texts):
            yield tuple(texts), value


def mark_spans(row: Dict[str, Any]) -> str:
    """CLUEWSC2020's text with its two spans marked, ``_noun_`` and ``[pronoun]``, so that one sequence holds the question."""
    text, marks = row["text"], []
    for number, around in ((1, "__"), (2, "[]")):
        start, span = int(row["target"][f"span{number}_index"]), row["target"][f"span{number}_text"]
        if text[start : start + len(span)] != span:
            raise ValueError(f"span{number}_index {start} is not where {span} stands")
        marks += [(start, 1, around[0]), (start + len(span), 0, around[1])]
    for place, _, mark in sorted(marks, reverse=True):  # from the end, so that places before it stay; at one place, close first
        text = text[:place] + mark + text[place:]
    return text


def read_clue(path: Path, task: str) -> Iterator[Row]:
    """``(texts, label)`` of a file of a CLUE task, a JSON object a line; a row whose label is ``-`` (nobody agreed) is left
    out."""
    if not path.is_file():
        sys.exit(f"{path}: no such file")
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                if task == "CLUEWSC2020":
                    row["text"] = mark_spans(row)
                texts = [row[name] for name in CLUE[task].texts]
                label = str(row["label"] if "label" in row else row["gold_label"]).strip()
            except KeyError as error:
                sys.exit(f"{path}: line {number} has no field {error}: not a labelled file of {task}")
            except (ValueError, TypeError) as error:
                sys.exit(f"{path}: line {number} is not as {task} has it: {' '.join(str(error).split())}")
            joined = tuple(" ".join(" ".join(x if isinstance(x, list) else [str(x)]).split()) for x in texts)
            if label not in ("", "-") and all(joined):
                yield joined, label


def folder_names(task: str) -> List[str]:
    """Names of the folders that GLUE's and CLUE's archives unpack a task to."""
    return list(dict.fromkeys([task, task.lower(), f"{task.lower()}_public", task.replace("-", "").lower()]))


def find_folder(data: Union[str, Path], task: str, must: bool = True) -> Path:
    """The folder of a task; where there is none, and it need not be, the first that it might be.

    Raises:
        SystemExit: there is none; names all that are looked for.
    """
    folders = [Path(data) / name for name in folder_names(task)]
    found = [folder for folder in folders if folder.is_dir()]
    if must and not found:
        sys.exit(f"--data {data}: has no folder of {task}: none of {', '.join(folder_names(task))} is there")
    return (found or folders)[0]


def read_splits(source: Path, task: str) -> Dict[str, List[Row]]:
    """``train`` and ``dev`` of a task's folder. MNLI has two of dev: the matched one counts."""
    clue = CLUE.get(task)
    if clue:
        train = clue.train if (source / clue.train).exists() else "train.json"
        paths, read = {"train": source / train, "dev": source / "dev.json"}, read_clue
    else:
        dev = "dev_matched" if task == "MNLI" else "dev"
        paths, read = {"train": source / "train.tsv", "dev": source / f"{dev}.tsv"}, read_glue
    splits = {split: list(read(path, task)) for split, path in paths.items()}
    for split, rows in splits.items():
        if not rows:
            sys.exit(f"{paths[split]}: no rows with texts and label for {task}")
    return splits


def check_labels(splits: Dict[str, List[Row]], where: Any) -> None:
    """Every class of dev is one of train, which the classes are learned from."""
    seen = {label for _, label in splits["train"]}
    new = sorted({label for _, label in splits["dev"]} - seen)
    if new:
        sys.exit(f"{where}: dev has classes that train has not: {', '.join(new[:5])}")


def settings(task: str, rows: Optional[int] = None) -> Dict[str, Any]:
    """``num_classes``, ``scores``, ``lr``, ``batch_size``, ``updates`` and ``warmup_updates`` as published.

    Args:
        task: of GLUE or CLUE.
        rows: of the training set, for CLUE, whose settings are in epochs.
    """
    entry: Any = GLUE.get(task) or CLUE[task]
    if isinstance(entry, Clue):
        updates = entry.epochs * -(-(rows or 0) // entry.batch)
        warmup = updates // 10
    else:
        updates, warmup = entry.updates, entry.warmup
    return {
        "num_classes": entry.classes,
        "scores": list(entry.scores),
        "lr": entry.lr,
        "batch_size": entry.batch,
        "updates": updates,
        "warmup_updates": warmup,
    }
