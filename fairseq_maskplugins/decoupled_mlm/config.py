"""The options of ``--task decoupled_mlm``: those of fairseq's ``masked_lm``, ours, and those of every masker."""

from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, Optional, Type

from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from fairseq.tasks.masked_lm import MaskedLMConfig
from hydra.core.config_store import ConfigStore
from omegaconf import II

from ..errors import UsageError
from ..maskers.base import MASKERS
from .plan import BUDGETS

TASK_NAME = "decoupled_mlm"


@dataclass
class DecoupledMLMBaseConfig(MaskedLMConfig):
    mask_prob: float = field(
        default=0.4, metadata={"help": "fraction of tokens corrupted and predicted, in (0, 1]; the default of both rates"}
    )
    leave_unmasked_prob: float = field(default=0.0, metadata={"help": "fraction of the units left as they are, in [0, 1]"})
    random_token_prob: float = field(default=0.0, metadata={"help": "fraction of the units made random tokens, in [0, 1]"})
    corruption_rate: Optional[float] = field(
        default=None, metadata={"help": "fraction of tokens corrupted, in (0, 1] (default: --mask-prob)"}
    )
    prediction_rate: Optional[float] = field(
        default=None,
        metadata={
            "help": "fraction of tokens predicted, in (0, 1] (default: --mask-prob); above --corruption-rate, sequences are "
            "copied, with disjoint sets of predicted tokens"
        },
    )
    mask_prob_final: Optional[float] = field(
        default=None, metadata={"help": "move both rates linearly to this value over --max-update"}
    )
    corruption_rate_final: Optional[float] = field(
        default=None, metadata={"help": "move --corruption-rate linearly to this value over --max-update"}
    )
    prediction_rate_final: Optional[float] = field(
        default=None, metadata={"help": "move --prediction-rate linearly to this value over --max-update"}
    )
    masker: str = field(default="uniform", metadata={"help": "the masking units: uniform (single tokens), whole_word, ..."})
    mask_budget: Optional[str] = field(
        default=None,
        metadata={
            "help": "exact: the count is met, a unit may be cut; whole: units are never cut, the count is met on average "
            "(default: the masker's own)"
        },
    )
    # values of other groups, not options; the two of model parallelism are unused, but checkpoints hold them
    max_update: int = II("optimization.max_update")
    pipeline_model_parallel: bool = II("distributed_training.pipeline_model_parallel")
    model_parallel_size: int = II("common.model_parallel_size")
    bf16: bool = II("common.bf16")
    tpu: bool = II("common.tpu")
    bpe_config: Any = II("bpe")


def build_config() -> Type[FairseqDataclass]:
    """Build a dataclass with the base options and those of every registered masker; a ValueError if a name is taken."""
    own = {f.name for f in fields(DecoupledMLMBaseConfig)}
    extra = []
    for name, entry in MASKERS.items():
        for f in fields(entry.config):
            if f.name in own:
                raise ValueError(f"masker {name!r}: option {f.name!r} is taken by --task {TASK_NAME}")
            extra.append((f.name, f.type, copy_field(f)))
    cls = make_dataclass("DecoupledMLMConfig", extra, bases=(DecoupledMLMBaseConfig,))
    # pickled configurations find the class by name
    cls.__module__, cls.__qualname__ = __name__, "DecoupledMLMConfig"
    globals()["DecoupledMLMConfig"] = cls
    return cls


def copy_field(f: Any) -> Any:
    """Copy a dataclass field."""
    return field(default=f.default, default_factory=f.default_factory, metadata=dict(f.metadata))


def refresh_config() -> None:
    """Give the registered task the options of maskers that were registered after it."""
    if TASK_NAME not in TASK_REGISTRY:
        return
    cls = build_config()
    TASK_DATACLASS_REGISTRY[TASK_NAME] = cls
    setattr(TASK_REGISTRY[TASK_NAME], "__dataclass", cls)
    node = cls()
    node._name = TASK_NAME
    ConfigStore.instance().store(name=TASK_NAME, group="task", node=node, provider="fairseq")


def check_options(cfg: Any) -> None:
    """Refuse impossible values and combinations with a :class:`UsageError` that names the option, the rule and the value."""
    p_random, p_same = cfg.random_token_prob, cfg.leave_unmasked_prob
    for name, valid, rule in (
        ("random_token_prob", 0 <= p_random <= 1, "lie in [0, 1]"),
        ("leave_unmasked_prob", 0 <= p_same <= 1, "lie in [0, 1]"),
        ("mask_multiple_length", cfg.mask_multiple_length >= 1, "be at least 1"),
        ("mask_stdev", 0 <= cfg.mask_stdev < float("inf"), "be 0 or more"),
        ("tokens_per_sample", cfg.tokens_per_sample >= 2, "be at least 2, <s> and a token"),
    ):
        if not valid:
            raise UsageError(f"--{name.replace('_', '-')} must {rule}, got {getattr(cfg, name):g}")
    if p_random + p_same > 1.0 + 1e-9:
        raise UsageError(f"--random-token-prob and --leave-unmasked-prob must add up to at most 1, got {p_random:g} + {p_same:g}")
    if cfg.masker not in MASKERS:
        raise UsageError(f"--masker must be one of {', '.join(sorted(MASKERS))}, got {cfg.masker!r}")
    if cfg.mask_whole_words and cfg.masker not in ("uniform", "whole_word"):
        raise UsageError(f"--mask-whole-words is --masker whole_word, and is not supported with --masker {cfg.masker}")
    if cfg.mask_budget is not None and cfg.mask_budget not in BUDGETS:
        raise UsageError(f"--mask-budget must be one of {', '.join(BUDGETS)}, got {cfg.mask_budget!r}")
    if cfg.tpu:
        advice = ": fairseq-train takes --bf16 for a TPU's; on GPUs give fairseq-hydra-train common.bf16=true" if cfg.bf16 else ""
        raise UsageError(f"--tpu is not supported with --task decoupled_mlm{advice}")
    for name in ("skip_masking", "d2v2_multi"):
        if getattr(cfg, name, False):
            raise UsageError(f"--{name.replace('_', '-')} is for data2vec, which masks in the model: use --task masked_lm")
