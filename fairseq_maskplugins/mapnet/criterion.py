"""``--criterion mapnet``: train a model on masks drawn from a proposal, and the proposer."""

import logging
import math
from typing import Any, Dict, List, Optional, Tuple

import torch
from fairseq.criterions import register_criterion
from fairseq.logging import metrics

from ..decoupled_mlm.criterion import DecoupledMLMCriterion
from ..decoupled_mlm.sample import PLAN_KEY
from ..decoupled_mlm.task import find_embedding
from ..errors import CheckpointError, UsageError
from .config import MapNetCriterionConfig, check_options
from .kinds import DECILES, frequency_deciles, sum_by_group
from .preference import Preference, compare_masks
from .proposal import PAIR, Pair, Weights, draw_pair, entropy_share, log_inclusion, propose, weigh
from .proposer import Proposer

logger = logging.getLogger(__name__)
EXTRA_STATE = "_extra_state"  # torch's key in a state dict
WORD_PLACES = ("continuation", "begin")
FREQUENCIES = tuple(f"decile_{i}" for i in range(1, DECILES + 1))


@register_criterion("mapnet", dataclass=MapNetCriterionConfig)
class MapNetCriterion(DecoupledMLMCriterion):
    """Draw two masks of each sequence from the proposal; train the model on both, weighted by importance, and the proposer on
    which of the two was harder.

    fairseq wraps, optimises and saves a criterion's parameters like the model's. In validation it is ``decoupled_mlm``.
    """

    chooses_masks = True  # the task leaves masking in training to us
    masks_per_row = PAIR  # what --max-tokens counts

    def __init__(self, cfg: MapNetCriterionConfig, task: Any):
        super().__init__(cfg, task)
        check_options(cfg)
        if not hasattr(task, "mask_batch"):
            raise UsageError("--criterion mapnet needs --task decoupled_mlm, which gives it unmasked sequences")
        self.cfg = cfg
        dictionary = task.source_dictionary
        shared_width: Optional[int] = None
        if cfg.mapnet_share_embeddings:
            shared_width = task.embedding_width
            if shared_width is None:
                raise UsageError("--mapnet-share-embeddings: the model has no table of token embeddings")
        self.proposer = Proposer(
            len(dictionary),
            self.padding_idx,
            cfg.mapnet_layers,
            cfg.mapnet_embed_dim,
            cfg.mapnet_attention_heads,
            cfg.mapnet_lr_scale,
            shared_width,
        )
        self._groups: Optional[Dict[str, torch.Tensor]] = None

    def get_extra_state(self) -> torch.Tensor:
        return torch.tensor(self.proposer.scale, dtype=torch.float64)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """See :meth:`load_state_dict`: the parameters come after this."""

    def load_state_dict(self, state_dict: Optional[Dict[str, Any]], *args: Any, **kwargs: Any) -> Any:
        if state_dict is None:  # of a run with another criterion
            logger.info("the checkpoint has no MAP-Net proposer: this one starts from its initial weights")
            return None
        shapes = {name: value.shape for name, value in self.state_dict().items() if name != EXTRA_STATE}
        if shapes != {name: value.shape for name, value in state_dict.items() if name != EXTRA_STATE}:
            raise CheckpointError(
                "its MAP-Net proposer has other sizes than this one: give the --mapnet-layers, "
                "--mapnet-embed-dim, --mapnet-attention-heads and --mapnet-share-embeddings that it was trained with"
            )
        state_dict = {EXTRA_STATE: self.get_extra_state(), **state_dict}
        keys = super().load_state_dict(state_dict, *args, **kwargs)
        self.proposer.rescale(float(state_dict[EXTRA_STATE]))
        return keys

    def propose(
        self, model: torch.nn.Module, tokens: torch.Tensor, maskable: torch.Tensor, mix: Optional[float] = None
    ) -> torch.Tensor:
        """``log q`` of uncorrupted sequences, with ``mix`` instead of ``--mapnet-uniform-mix`` if given. *Shape:* ``[B, T]``."""
        embedding = find_embedding(model, len(self.task.source_dictionary)) if self.proposer.shared else None
        scores = self.proposer(tokens, embedding)
        mix = self.cfg.mapnet_uniform_mix if mix is None else mix
        return propose(scores, maskable, self.cfg.mapnet_temperature, mix)

    def draw(self, sample: Dict[str, Any], log_q: torch.Tensor) -> Tuple[Dict[str, Any], Pair]:
        """Mask each sequence twice, in ``K`` copies. Sequence ``b``, mask ``m``, copy ``c`` is at line ``(2 b + m) K + c``."""
        plan = sample[PLAN_KEY]
        pair = draw_pair(log_q, (self.cfg.seed, sample["update_num"]), sample["id"])

        def twice(value: Any) -> Any:
            return value.repeat_interleave(PAIR, dim=0) if torch.is_tensor(value) else value

        drawn = {key: value for key, value in sample.items() if key not in ("rates", "update_num")}
        drawn.update(
            id=twice(sample["id"]),
            net_input={key: twice(value) for key, value in sample["net_input"].items()},
            nsentences=sample["nsentences"] * PAIR,
            ntokens=sample["ntokens"] * PAIR,
        )
        replacement = plan.get("replacement")
        drawn[PLAN_KEY] = {
            "depth": pair.depth.flatten(0, 1), "count": twice(plan["count"]), "replacement": twice(replacement)
        }  # fmt: skip
        return self.task.mask_batch(drawn, sample["rates"]), pair

    def forward(
        self, model: torch.nn.Module, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[torch.Tensor, torch.Tensor, Dict[str, Any]]:
        if PLAN_KEY not in sample:
            return super().forward(model, sample, reduce)
        tokens, plan = sample["net_input"]["src_tokens"], sample[PLAN_KEY]
        maskable = plan["depth"] <= plan["count"][:, None]
        log_q = self.propose(model, tokens, maskable)
        used = log_q.detach()
        if sample["update_num"] < self.cfg.mapnet_warmup_updates:
            used = propose(torch.zeros_like(used), maskable, 1.0, 1.0)
        masked, pair = self.draw(sample, used)
        shape = (len(tokens), PAIR, masked["copies"], tokens.size(1))
        predicted = masked["target"].ne(self.padding_idx).view(shape)  # [B, 2, K, T]
        taken = predicted.any(2)  # the copies' predicted sets are disjoint

        loss, selected = self.predict(model, masked)
        weights = self.weigh(used, pair, taken, plan["count"])
        spread = torch.zeros(selected.shape, dtype=loss.dtype, device=loss.device)
        spread = spread.masked_scatter(selected, loss.detach())
        mean_loss = spread.view(shape).sum((2, 3)) / taken.sum(-1).clamp(min=1)
        preference = compare_masks(log_q, taken, mean_loss, self.cfg.mapnet_beta, self.cfg.mapnet_margin)
        weight = weights.weight[:, :, None].expand(shape).flatten(0, 2)[selected].type_as(loss)

        logging_output = self.summarise(masked, loss.detach(), selected)
        logging_output["unweighted_loss"] = logging_output["loss"]
        weighted = loss * weight
        logging_output["loss"] = weighted.detach().sum()
        logging_output.update(self.describe(log_q.detach(), maskable, tokens, taken, weights, preference))
        total = weighted.sum() + preference.loss.sum() if reduce else weighted
        return total, logging_output["sample_size"], logging_output

    def weigh(self, log_q: torch.Tensor, pair: Pair, taken: torch.Tensor, count: torch.Tensor) -> Weights:
        log_pi = log_inclusion(log_q, pair.perturbed, taken)
        if self.cfg.mapnet_weights == "none":
            return Weights(taken.double(), taken.any(-1).double(), torch.zeros_like(taken))
        return weigh(log_pi, taken, count, self.cfg.max_importance_weight)

    def describe(
        self,
        log_q: torch.Tensor,
        maskable: torch.Tensor,
        tokens: torch.Tensor,
        taken: torch.Tensor,
        weights: Weights,
        preference: Preference,
    ) -> Dict[str, torch.Tensor]:
        """Sums for the metrics; all of them add up over batches and ranks."""
        count = maskable.sum(1)
        chosen = tokens[maskable]
        relative = (count[:, None] * log_q.double().exp())[maskable]
        sums = {
            "preference_loss": preference.loss.detach().double().sum(),
            "n_pairs": preference.counts.sum(),
            "n_correct": preference.correct.sum(),
            "entropy": entropy_share(log_q, count)[count > 1].sum(),
            "n_entropy": (count > 1).sum(),
            "effective": (weights.effective * taken.sum(-1)).sum(),
            "n_clipped": weights.clipped.sum(),
            "n_weights": taken.sum(),
        }
        for name, group in self.groups(tokens.device).items():
            sums.update(sum_by_group(relative, group[chosen], WORD_PLACES if name == "place" else FREQUENCIES))
        return sums

    def groups(self, device: torch.device) -> Dict[str, torch.Tensor]:
        """Classes of the dictionary's entries, as far as they are known: int64 ``[V]`` each."""
        if self._groups is None:
            vocabulary, self._groups = self.task.planner.vocabulary, {}
            if vocabulary.find_word_begins is not None:
                begins = torch.from_numpy(vocabulary.find_word_begins())
                self._groups["place"] = begins.long().to(device)
            deciles = frequency_deciles(self.task.source_dictionary.count, vocabulary.maskable)
            if deciles is not None:
                self._groups["frequency"] = (torch.from_numpy(deciles) - 1).clamp(min=0).to(device)
        return self._groups

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Aggregate logging outputs from data parallel training."""
        DecoupledMLMCriterion.reduce_metrics(logging_outputs)
        if not any("n_weights" in log for log in logging_outputs):
            return  # validation

        def log(name: str, part: str, whole: str, factor: float = 1.0, digits: int = 3) -> None:
            numerator, count = (float(sum(log.get(key, 0) for log in logging_outputs)) for key in (part, whole))
            if count > 0:
                metrics.log_scalar(name, factor * numerator / count, count, round=digits)

        log("unweighted_loss", "unweighted_loss", "sample_size", 1 / math.log(2))
        log("preference_loss", "preference_loss", "n_pairs")
        log("preference_accuracy", "n_correct", "n_pairs")
        log("proposal_entropy", "entropy", "n_entropy", digits=4)
        log("effective_sample_size", "effective", "n_weights")
        log("clipped_weights", "n_clipped", "n_weights", digits=4)
        for name in WORD_PLACES + FREQUENCIES:
            log(f"proposed_{name}", f"q_{name}", f"n_q_{name}")
