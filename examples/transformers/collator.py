"""A data collator for transformers' ``Trainer``: any masker, decoupled rates, reproducible masks."""

from typing import Any, Dict, List, Optional

import torch
from transformers import TrainerCallback

from fairseq_maskplugins.decoupled_mlm.batch import mask_batch
from fairseq_maskplugins.decoupled_mlm.rates import Rates
from fairseq_maskplugins.maskers import make_masker
from fairseq_maskplugins.vocabulary import Vocabulary


class MaskingCollator(TrainerCallback):
    """Pad and mask examples of the form ``{"input_ids": [...], "idx": 7}``.

    A mask depends on the seed, the epoch and the example's ``idx`` alone, not on the batch, the worker or the process. Pass
    the collator to ``Trainer`` as ``callbacks=[collator]`` too, so that each epoch has new masks; evaluation keeps those of
    the epoch that it runs in. ``remove_unused_columns=False`` lets ``idx`` reach it.

    Args:
        tokenizer: of transformers.
        masker: ``"uniform"``, ``"whole_word"``, ``"span"`` or ``"pmi"``; ``options`` are those of the masker.
        corruption_rate, prediction_rate: each in (0, 1]; the second defaults to the first. If it is larger, a batch holds
            several copies of each example, with disjoint sets of predicted tokens.
        random_token_prob, leave_unmasked_prob: 0.1 each is BERT's 80-10-10.
    """

    def __init__(
        self,
        tokenizer: Any,
        masker: str = "uniform",
        corruption_rate: float = 0.4,
        prediction_rate: Optional[float] = None,
        random_token_prob: float = 0.0,
        leave_unmasked_prob: float = 0.0,
        seed: int = 1,
        **options: Any,
    ):
        self.masker = make_masker(masker, Vocabulary.from_transformers(tokenizer), **options)
        self.rates = Rates(corruption_rate, corruption_rate if prediction_rate is None else prediction_rate)
        self.replace = {"random_token_prob": random_token_prob, "leave_unmasked_prob": leave_unmasked_prob}
        self.seed = seed
        self.epoch = torch.ones(1, dtype=torch.int64).share_memory_()  # data workers see it change

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.epoch.fill_(int(state.epoch or 0) + 1)

    def __call__(self, examples: List[Dict[str, Any]]) -> Dict[str, torch.Tensor]:
        pad = self.masker.vocabulary.pad
        longest = max(len(example["input_ids"]) for example in examples)
        tokens = torch.full((len(examples), longest), pad)
        for row, example in zip(tokens, examples):
            row[: len(example["input_ids"])] = torch.as_tensor(example["input_ids"])
        ids = [int(example["idx"]) for example in examples]
        masked = mask_batch(tokens, self.masker, self.rates, self.seed, int(self.epoch), ids, **self.replace)
        attention = tokens.ne(pad).long()[masked.sequence]
        return {"input_ids": masked.source, "attention_mask": attention, "labels": masked.target}
