"""SQuAD's files, windows over long texts, answers out of logits, and the official scores (no model here).

Sources: the files and scores of SQuAD 1.1 (arXiv 1606.05250) and 2.0 (arXiv 1806.03822); windows and the threshold against
"no answer" as in BERT's fine-tuning (arXiv 1810.04805, section 4.2 and 4.3).
"""

import json
import sys
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple, Union

import numpy as np


class Question(NamedTuple):
    id: str
    question: str
    context: str
    answers: Tuple[Tuple[str, int], ...]  # text, and where it begins in the context; empty: it has no answer


class Window(NamedTuple):
    """A part of a context behind its question, as the model reads it."""

    question: int  # which one it is of
    input_ids: List[int]
    spans: List[Tuple[int, int]]  # of each token in the context; (-1, -1) where it is no part of it
    start: int  # of the answer's tokens; both 0, at <s>, where the answer is not in this window
    end: int


def read_squad(path: Union[str, Path]) -> List[Question]:
    """The questions of a file of SQuAD 1.1 or 2.0.

    Raises:
        SystemExit: it can't be read, or is no such file; one line.
    """
    try:
        articles = json.loads(Path(path).read_text(encoding="utf-8"))["data"]
        questions = [
            Question(
                str(entry["id"]),
                " ".join(entry["question"].split()),
                paragraph["context"],
                tuple((answer["text"], int(answer["answer_start"])) for answer in entry["answers"]),
            )
            for article in articles
            for paragraph in article["paragraphs"]
            for entry in paragraph["qas"]
        ]
    except OSError as error:
        sys.exit(f"{path}: can't read it: {error.strerror}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        sys.exit(f"{path}: is no file of SQuAD, with data, paragraphs, qas and answers: {' '.join(str(error).split())}")
    if not questions:
        sys.exit(f"{path}: holds no questions")
    return questions


def make_windows(tokenizer: Any, questions: Sequence[Question], length: int, overlap: int) -> List[Window]:
    """Cut contexts that are too long into windows of ``length`` tokens, of which ``overlap`` stand in the next one too.

    A question longer than half a window keeps its beginning.
    """
    windows = []
    for number, question in enumerate(questions):
        text = question.question
        places = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        if len(places) > length // 2:
            text = text[: places[length // 2 - 1][1]]
        found = tokenizer(
            text,
            question.context,
            truncation="only_second",
            max_length=length,
            stride=overlap,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for i, ids in enumerate(found["input_ids"]):
            parts = found.encodings[i].sequence_ids
            spans = [span if part == 1 else (-1, -1) for span, part in zip(found["offset_mapping"][i], parts)]
            windows.append(Window(number, ids, spans, *_place(question, spans)))
    return windows


def _place(question: Question, spans: List[Tuple[int, int]]) -> Tuple[int, int]:
    """First and last token of the first answer; (0, 0) where it is not whole in the window."""
    if not question.answers:
        return 0, 0
    text, first = question.answers[0]
    last = first + len(text)
    inside = [i for i, (start, end) in enumerate(spans) if start >= 0 and end > first and start < last and end > start]
    context = [span for span in spans if span[0] >= 0]
    if not inside or context[0][0] > first or context[-1][1] < last:
        return 0, 0
    return inside[0], inside[-1]


def best_spans(
    windows: Sequence[Window],
    starts: Sequence[np.ndarray],
    ends: Sequence[np.ndarray],
    questions: Sequence[Question],
    longest: int = 30,
    null: bool = False,
) -> Dict[str, str]:
    """The answer to each question, by its id: the span with the highest sum of logits over all windows of its context.

    Args:
        windows: of :func:`make_windows`.
        starts: logits of the answer's first token, ``[T]`` for each window.
        ends: of its last.
        questions: those that the windows are of.
        longest: tokens that an answer may have.
        null: a question may have no answer (SQuAD 2.0): it has none where ``<s>`` has the higher sum, in the window
            where that is lowest.
    """
    best: Dict[int, Tuple[float, str]] = {}
    nothing: Dict[int, float] = {}
    for window, start, end in zip(windows, starts, ends):
        number, context = window.question, questions[window.question].context
        nothing[number] = min(nothing.get(number, np.inf), float(start[0] + end[0]))
        places = np.array([i for i, (a, b) in enumerate(window.spans) if b > a >= 0], dtype=int)
        if not len(places):
            continue
        sums = start[places][:, None] + end[places][None, :]
        distance = places[None, :] - places[:, None]
        sums = np.where((distance >= 0) & (distance < longest), sums, -np.inf)
        i, j = np.unravel_index(int(sums.argmax()), sums.shape)
        score = float(sums[i, j])
        if number not in best or score > best[number][0]:
            text = context[window.spans[places[i]][0] : window.spans[places[j]][1]]
            best[number] = (score, text.strip())
    answers = {}
    for number, question in enumerate(questions):
        score, text = best.get(number, (-np.inf, ""))
        answers[question.id] = "" if null and nothing.get(number, np.inf) >= score else text
    return answers


def evaluate(answers: Dict[str, str], questions: Sequence[Question]) -> Dict[str, float]:
    """Exact match and F1 in percent, as the official scripts have them; the best over a question's answers counts. With
    questions that have none, also of both kinds alone."""
    from transformers.data.metrics.squad_metrics import compute_exact, compute_f1, normalize_answer

    scores: Dict[bool, List[Tuple[float, float]]] = {True: [], False: []}
    for question in questions:
        found = answers.get(question.id, "")
        golds = [text for text, _ in question.answers if normalize_answer(text)] or [""]
        pair = tuple(float(max(measure(gold, found) for gold in golds)) for measure in (compute_exact, compute_f1))
        scores[bool(question.answers)].append(pair)
    groups = {"": scores[True] + scores[False]}
    if scores[False]:
        groups.update({"HasAns_": scores[True], "NoAns_": scores[False]})
    found = {}
    for prefix, pairs in groups.items():
        for name, values in zip(("exact", "f1"), zip(*pairs)):
            found[prefix + name] = round(100 * sum(values) / len(values), 4)
    return {**found, "total": len(questions)}
