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
    With nothing to predict, the loss and all gradients are 0, so distributed ranks stay in step.
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
        """Return the loss of each predicted token ``[N]`` and their positions, bool ``[B, T]``."""
        target = sample["target"]
        predicted = target.ne(self.padding_idx)
        # with nothing to predict, the first position with padding as its target: a loss of 0, and no device-to-host transfer
        first = torch.zeros_like(predicted)
        first[:1, :1] = True
        selected = torch.where(predicted.any(), predicted, first)
        logits = model(**sample["net_input"], masked_tokens=selected)[0]
        logits = logits.reshape(-1, logits.size(-1))
        loss = modules.cross_entropy(logits, target[selected], reduction="none", ignore_index=self.padding_idx)
        return loss, selected

    def summarise(self, sample: Dict[str, Any], loss: torch.Tensor, selected: torch.Tensor) -> Dict[str, Any]:
        """Build the logging output from what :meth:`predict` returned."""
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
        """Count tokens for the measured rates; nothing for another task's samples, which lack the uncorrupted tokens."""
        if "tokens" not in sample:
            return {}
        maskable = sample["maskable"].sum()
        changed = sample["net_input"]["src_tokens"].ne(sample["tokens"])
        return {
            "n_maskable": maskable,
            # each sequence counts once, not once per copy
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
        for name, part, whole, unit, digits in (
            *((f"loss_{kind}", f"loss_{kind}", f"n_{kind}", math.log(2), 3) for kind in KINDS),
            ("corruption_rate", "n_corrupted", "n_maskable", 1, 4),
            ("prediction_rate", "n_predicted", "n_maskable_rows", 1, 4),
        ):
            count = total(whole)
            if count > 0:
                metrics.log_scalar(name, total(part) / count / unit, count, round=digits)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
