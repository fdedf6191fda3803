"""``--criterion decoupled_mlm``: masked-LM loss at predicted positions, split by what the model saw there."""

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Tuple

import torch
from fairseq import modules, utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics

from .losses import KINDS, sum_by_kind


@dataclass
class DecoupledMLMCriterionConfig(FairseqDataclass):
    pass


@register_criterion("decoupled_mlm", dataclass=DecoupledMLMCriterionConfig)
class DecoupledMLMCriterion(FairseqCriterion):
    """Cross-entropy of the predicted tokens, summed; logits are computed at predicted positions only.

    Logs loss and perplexity (base 2) in total, the loss of tokens that were masked, replaced at random and left the same,
    and the measured rates in the paper's definition: tokens left the same count neither as corrupted nor as predicted.
    A batch in which nothing is predicted gives a loss of 0 with gradients of 0, so that no rank waits for another.
    """

    def __init__(self, cfg: DecoupledMLMCriterionConfig, task: Any):
        super().__init__(task)
        self.mask_idx = task.mask_idx

    def forward(
        self, model: torch.nn.Module, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[torch.Tensor, torch.Tensor, Dict[str, Any]]:
        loss, selected = self.predict(model, sample)
        logging_output = self.summarise(sample, loss.detach(), selected)
        return loss.sum() if reduce else loss, logging_output["sample_size"], logging_output

    def predict(self, model: torch.nn.Module, sample: Dict[str, Any]) -> Tuple[torch.Tensor, torch.Tensor]:
        """The loss of each predicted token ``[N]``, and where they are, bool ``[B, T]``.

        Where nothing is predicted that is one position all the same, towards padding, and its loss is 0.
        """
        target = sample["target"]
        predicted = target.ne(self.padding_idx)
        # where nothing is predicted one position is, towards padding, which costs nothing; no device-to-host transfer
        first = torch.zeros_like(predicted)
        first[:1, :1] = True
        selected = torch.where(predicted.any(), predicted, first)
        logits = model(**sample["net_input"], masked_tokens=selected)[0]
        logits = logits.reshape(-1, logits.size(-1))
        loss = modules.cross_entropy(logits, target[selected], reduction="none", ignore_index=self.padding_idx)
        return loss, selected

    def summarise(self, sample: Dict[str, Any], loss: torch.Tensor, selected: torch.Tensor) -> Dict[str, Any]:
        """The logging output for what :meth:`predict` gave."""
        source, target = sample["net_input"]["src_tokens"], sample["target"]
        predicted = target.ne(self.padding_idx)
        return {
            "loss": loss.sum(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": predicted.sum(),
            **sum_by_kind(loss, source[selected], target[selected], self.mask_idx),
            **self.count_rates(sample, predicted),
        }

    def count_rates(self, sample: Dict[str, Any], predicted: torch.Tensor) -> Dict[str, Any]:
        """Counts for the measured rates; empty for samples of another task, which carry no uncorrupted tokens."""
        if "tokens" not in sample:
            return {}
        maskable = sample["maskable"].sum()
        changed = sample["net_input"]["src_tokens"].ne(sample["tokens"])
        return {
            "n_maskable": maskable,
            # each row counted once, not once a copy
            "n_maskable_rows": torch.div(maskable, sample["copies"], rounding_mode="floor"),
            "n_corrupted": changed.sum(),
            "n_predicted": (changed & predicted).sum(),
        }

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Aggregate logging outputs from data parallel training."""

        def total(key: str) -> float:
            return float(sum(log.get(key, 0) for log in logging_outputs))

        sample_size = total("sample_size")
        metrics.log_scalar("loss", total("loss") / max(sample_size, 1) / math.log(2), sample_size, round=3)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["loss"].avg))
        for kind in KINDS:
            count = total(f"n_{kind}")
            if count > 0:
                metrics.log_scalar(f"loss_{kind}", total(f"loss_{kind}") / count / math.log(2), count, round=3)
        for name, part, whole in (
            ("corruption_rate", "n_corrupted", "n_maskable"),
            ("prediction_rate", "n_predicted", "n_maskable_rows"),
        ):
            count = total(whole)
            if count > 0:
                metrics.log_scalar(name, total(part) / count, count, round=4)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
