"""A ``--user-dir`` on top of fairseq_maskplugins: ``--criterion sentence_scores`` is fairseq's ``sentence_prediction`` that also
logs what GLUE scores besides accuracy. fairseq 0.12.2 has none of it; fairseq-fixed has it, for classes that are called by
numbers, with scikit-learn.
"""

import os
import sys
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from fairseq.criterions import register_criterion
from fairseq.criterions.sentence_prediction import SentencePredictionConfig, SentencePredictionCriterion
from fairseq.logging import metrics
from fairseq.logging.meters import Meter

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", ".."))
import fairseq_maskplugins  # noqa: E402,F401  (registers optimizers and architectures)
from fairseq_maskplugins.errors import UsageError  # noqa: E402

from .measures import MEASURES, OF_CLASSES, OF_NUMBERS  # noqa: E402


@dataclass
class SentenceScoresConfig(SentencePredictionConfig):
    scores: str = field(default="", metadata={"help": f"on validation data, joined by commas: {', '.join(MEASURES)}; in percent"})


class Pairs(Meter):
    """All pairs (predicted, target) of a validation."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.pairs = []

    def update(self, pairs):
        self.pairs.extend(pairs)

    @property
    def smoothed_value(self):
        return len(self.pairs)


class Recorder:
    """Stands for a model and keeps the logits of its last call."""

    def __init__(self, model):
        self.model = model

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __call__(self, *args, **kwargs):
        out = self.model(*args, **kwargs)
        self.logits = out[0]
        return out


def percent(name, meters):
    predicted, target = np.array(meters["_pairs"].pairs).T
    return round(100 * MEASURES[name](predicted, target), 2)


@register_criterion("sentence_scores", dataclass=SentenceScoresConfig)
class SentenceScoresCriterion(SentencePredictionCriterion):
    """The loss is fairseq's. Class "1" is the positive one of mcc and f1, whatever its place in the label dictionary."""

    def __init__(self, cfg, task):
        super().__init__(cfg, task)
        self.scores = [name for name in cfg.scores.split(",") if name]
        allowed = OF_NUMBERS if cfg.regression_target else OF_CLASSES
        unknown = [name for name in self.scores if name not in allowed]
        if unknown:
            raise UsageError(f"--scores must be among {', '.join(allowed)} for this task, got {', '.join(unknown)}")
        self.positive = None
        if self.scores and not cfg.regression_target:
            labels = task.label_dictionary
            if "1" not in labels.indices:
                raise UsageError(f"--scores {cfg.scores}: the label dictionary has no class 1, which would be the positive one")
            self.positive = labels.index("1") - labels.nspecial

    def forward(self, model, sample, reduce=True):
        if self.training or not self.scores:
            return super().forward(model, sample, reduce)
        recorder = Recorder(model)
        loss, sample_size, log = super().forward(recorder, sample, reduce)
        logits, target = recorder.logits.detach().float(), sample["target"].view(-1)
        if self.positive is None:
            pairs = (logits.view(-1), target.float())
        else:
            pairs = ((logits.argmax(dim=1) == self.positive).float(), (target == self.positive).float())
        log["pairs"] = list(zip(*(values.tolist() for values in pairs)))
        log["scores"] = self.scores
        return loss, sample_size, log

    @staticmethod
    def reduce_metrics(logging_outputs):
        SentencePredictionCriterion.reduce_metrics(logging_outputs)
        pairs = [pair for log in logging_outputs for pair in log.get("pairs", [])]
        if pairs:
            metrics.log_custom(Pairs, "_pairs", pairs)
            for name in next(log["scores"] for log in logging_outputs if "scores" in log):
                metrics.log_derived(name, partial(percent, name))

    @staticmethod
    def logging_outputs_can_be_summed():
        return False
