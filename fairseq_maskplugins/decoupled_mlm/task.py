"""``--task decoupled_mlm``: fairseq's ``masked_lm`` with separate rates, maskers, schedules and reproducible masks."""

import gc
import inspect
import logging
import os
import weakref
from typing import Any, Dict, Optional

import torch
from fairseq import utils
from fairseq.data import Dictionary, data_utils
from fairseq.data.shorten_dataset import maybe_shorten_dataset
from fairseq.models import FairseqEncoderDecoderModel, FairseqLanguageModel
from fairseq.tasks import register_task
from fairseq.tasks.masked_lm import MaskedLMTask
from omegaconf import MISSING, OmegaConf

from ..compat import load_dictionary, release_workers, spare_inference_copies
from ..errors import UsageError, naming, one_line
from ..maskers.base import build_masker, on_register
from .config import TASK_NAME, build_config, check_options, refresh_config
from .dataset import MaskPlanDataset, build_blocks
from .dictionary import build_vocabulary
from .plan import Planner
from .rates import Rates, build_schedule
from .sample import PLAN_KEY, mask_sample

logger = logging.getLogger(__name__)


@register_task(TASK_NAME, dataclass=build_config())
class DecoupledMLMTask(MaskedLMTask):
    """Pretrain a masked language model with a corruption rate and a prediction rate.

    Data workers read sequences and draw mask plans; the training and validation steps cut them at the current rates, on the
    device, with :func:`~fairseq_maskplugins.decoupled_mlm.sample.mask_sample`.
    """

    def __init__(self, cfg: Any, dictionary: Dictionary):
        super().__init__(cfg, dictionary)
        self.schedule = build_schedule(
            cfg.mask_prob,
            cfg.corruption_rate,
            cfg.prediction_rate,
            cfg.mask_prob_final,
            cfg.corruption_rate_final,
            cfg.prediction_rate_final,
            cfg.max_update or 0,
        )
        check_options(cfg)
        if self.schedule.max_copies > cfg.tokens_per_sample:
            raise UsageError(
                f"--prediction-rate over --corruption-rate makes {self.schedule.max_copies:g} copies of each sequence, more than "
                f"--tokens-per-sample, {cfg.tokens_per_sample}: raise --corruption-rate"
            )
        self.masker_name = "whole_word" if cfg.mask_whole_words else cfg.masker
        self._planner: Optional[Planner] = None
        self.embedding_width: Optional[int] = None  # of the last model built
        self.masks_per_row = 1  # of the last criterion built
        self._iterators: Any = weakref.WeakKeyDictionary()  # of each data set

    @classmethod
    def setup_task(cls, cfg: Any, **unused: Any) -> "DecoupledMLMTask":
        missing = [name for name in cfg if OmegaConf.is_missing(cfg, name)] if OmegaConf.is_config(cfg) else []
        paths = [] if "data" in missing or cfg.data in (None, MISSING) else utils.split_paths(cfg.data)
        if paths and missing:
            raise UsageError(f"task.{missing[0]} must have a value, and is ??? in the configuration")
        if not paths:
            raise UsageError("the data directory is missing: give one, or several joined by ':'")
        for other in paths[1:]:
            if not os.path.isdir(other):
                raise UsageError(f"the data directory {other!r} of {cfg.data} does not exist")
        path = os.path.join(paths[0], "dict.txt")
        return cls(cfg, load_dictionary(path, "the data directory must be one that fairseq-preprocess wrote"))

    @property
    def planner(self) -> Planner:
        """The planner, built with the first data set, so that inference needs no ``--bpe`` files."""
        if self._planner is None:
            cfg = self.cfg
            with naming({"dict.txt": os.path.join(utils.split_paths(cfg.data)[0], "dict.txt")}):
                vocabulary = build_vocabulary(self.dictionary, cfg.freq_weighted_replacement, cfg.bpe_config)
            masker = build_masker(self.masker_name, cfg, vocabulary)
            if not masker.can_merge and (cfg.mask_multiple_length != 1 or cfg.mask_stdev != 0):
                raise UsageError(f"--mask-multiple-length and --mask-stdev are not supported with --masker {self.masker_name}")
            self._planner = Planner(
                masker, cfg.mask_budget, cfg.random_token_prob, cfg.leave_unmasked_prob, cfg.mask_multiple_length, cfg.mask_stdev
            )
        return self._planner

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **unused: Any) -> None:
        """Load a split; with several data directories, epoch ``e`` reads directory ``(e - 1) mod N``."""
        planner, paths = self.planner, utils.split_paths(self.cfg.data)
        path = os.path.join(paths[(epoch - 1) % len(paths)], split)
        dataset = self._open(path, split, combine)
        blocks = build_blocks(dataset.sizes, self.cfg.sample_break_mode, self.cfg.tokens_per_sample - 1)
        copies = self.schedule.max_copies * self.masks_per_row
        loaded = MaskPlanDataset(dataset, blocks, planner, self.cfg.seed, copies, path)
        logger.info(f"loaded {len(loaded)} blocks from: {path}")
        self._let_go(self.datasets.get(split))
        self.datasets[split] = loaded

    def _let_go(self, dataset: Optional[MaskPlanDataset]) -> None:
        """Release the last shard; the trainer still holds its iterator."""
        if dataset is None:
            return
        self.dataset_to_epoch_iter.pop(dataset, None)
        for iterator in self._iterators.pop(dataset, ()):
            release_workers(iterator)
        gc.collect()

    def get_batch_iterator(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        iterator = super().get_batch_iterator(dataset, *args, **kwargs)
        self._iterators.setdefault(dataset, weakref.WeakSet()).add(iterator)
        return iterator

    def _open(self, path: str, split: str, combine: bool) -> Any:
        cfg = self.cfg
        try:
            dataset = data_utils.load_indexed_dataset(path, self.source_dictionary, combine=combine)
        except Exception as error:  # a damaged file: struct, numpy and OS errors, assertions
            raise UsageError(f"{path}: can't read the data: {type(error).__name__}: {one_line(error)}") from None
        if dataset is None:
            raise UsageError(f"{path}.bin and {path}.idx: no such data set; fairseq-preprocess writes them")
        if len(dataset) == 0:
            raise UsageError(f"{path}.bin: the data set is empty")
        # one less, as for blocks: <s> comes on top
        return maybe_shorten_dataset(
            dataset, split, cfg.shorten_data_split_list, cfg.shorten_method, cfg.tokens_per_sample - 1, cfg.seed
        )

    def build_model(self, cfg: Any, *args: Any, **kwargs: Any) -> Any:
        model = super().build_model(cfg, *args, **kwargs)
        check_model(model, cfg)
        spare_inference_copies(model)
        embedding = find_embedding(model, len(self.dictionary))
        self.embedding_width = None if embedding is None else embedding.size(1)
        limit = model.max_positions() if hasattr(model, "max_positions") else None
        if isinstance(limit, int) and self.cfg.sample_break_mode != "eos" and self.cfg.tokens_per_sample > limit:
            raise UsageError(
                f"--tokens-per-sample must be at most the model's --max-positions, {limit}, got {self.cfg.tokens_per_sample}"
            )
        return model

    def build_criterion(self, cfg: Any, *args: Any, **kwargs: Any) -> Any:
        criterion = super().build_criterion(cfg, *args, **kwargs)
        self.masks_per_row = getattr(criterion, "masks_per_row", 1)
        return criterion

    def max_positions(self) -> None:
        return None  # the model's own limit holds

    def mask_batch(self, sample: Dict[str, Any], rates: Rates) -> Dict[str, Any]:
        """Mask a batch at a pair of rates; a batch without a plan (masked already) is returned as it is."""
        if not sample or PLAN_KEY not in sample:
            return sample
        masked = mask_sample(sample, rates, self.dictionary.pad(), self.mask_idx, include_targets=self.cfg.include_target_tokens)
        if getattr(self.cfg, "include_index", False):
            masked["net_input"]["src_id"] = masked["id"]
        return masked

    def train_step(
        self, sample: Dict[str, Any], model: torch.nn.Module, criterion: Any, optimizer: Any, update_num: int, **options: Any
    ) -> Any:
        rates = self.schedule.at(update_num)
        if getattr(criterion, "chooses_masks", False):
            sample = {**sample, "rates": rates, "update_num": update_num}  # it calls mask_batch
        else:
            sample = self.mask_batch(sample, rates)
        return super().train_step(sample, model, criterion, optimizer, update_num, **options)

    def valid_step(self, sample: Dict[str, Any], model: torch.nn.Module, criterion: Any, **kwargs: Any) -> Any:
        """Validate at the rates of update 0, with the same masks in every epoch."""
        return super().valid_step(self.mask_batch(sample, self.schedule.start), model, criterion, **kwargs)


def find_embedding(model: torch.nn.Module, size: int) -> Optional[torch.Tensor]:
    """Return the model's token embeddings ``[V, C]``: the first table of ``size`` rows, or None."""
    modules = (m for m in model.modules() if isinstance(m, torch.nn.Embedding))
    return next((m.weight for m in modules if m.num_embeddings == size), None)


def check_model(model: torch.nn.Module, cfg: Any) -> None:
    """Refuse architectures that are not masked language models."""
    parameters = inspect.signature(model.forward).parameters.values()
    if not any(p.name == "masked_tokens" or p.kind == p.VAR_KEYWORD for p in parameters) or isinstance(
        model, (FairseqLanguageModel, FairseqEncoderDecoderModel)
    ):
        raise UsageError(
            f"--arch must be a masked language model (roberta_base and its like): {getattr(cfg, 'arch', cfg)} does not "
            "take the positions to predict"
        )


on_register(refresh_config)
