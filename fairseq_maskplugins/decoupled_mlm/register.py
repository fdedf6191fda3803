"""The options of ``--task decoupled_mlm``: those of fairseq's ``masked_lm``, ours, and those of every masker."""

from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, Optional, Type

from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from fairseq.tasks.masked_lm import MaskedLMConfig
from hydra.core.config_store import ConfigStore
from omegaconf import II

from ..maskers.base import MASKERS

TASK_NAME = "decoupled_mlm"


@dataclass
class DecoupledMLMBaseConfig(MaskedLMConfig):
    mask_prob: float = field(
        default=0.4,
        metadata={"help": "share of tokens that is corrupted and predicted, in (0, 1]; the default of both rates"},
    )
    leave_unmasked_prob: float = field(
        default=0.0, metadata={"help": "share of the selected units that is left as it is, in [0, 1]"}
    )
    random_token_prob: float = field(
        default=0.0, metadata={"help": "share of the selected units that becomes random tokens, in [0, 1]"}
    )
    corruption_rate: Optional[float] = field(
        default=None, metadata={"help": "share of tokens that is corrupted, in (0, 1] (default: --mask-prob)"}
    )
    prediction_rate: Optional[float] = field(
        default=None,
        metadata={
            "help": "share of tokens that is predicted, in (0, 1] (default: --mask-prob); above --corruption-rate, rows "
            "are copied, with disjoint sets of predicted tokens"
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
    masker: str = field(
        default="uniform", metadata={"help": "what is masked together: uniform (single tokens), whole_word, ..."}
    )
    mask_budget: Optional[str] = field(
        default=None,
        metadata={
            "help": "exact: the number of masked tokens is met, a unit may be cut; whole: units are never cut, the "
            "number is met on average (default: the masker's own)"
        },
    )
    # not options: values of other parts of the configuration
    max_update: int = II("optimization.max_update")
    pipeline_model_parallel: bool = II("distributed_training.pipeline_model_parallel")
    model_parallel_size: int = II("common.model_parallel_size")
    bf16: bool = II("common.bf16")
    tpu: bool = II("common.tpu")
    bpe_config: Any = II("bpe")


def build_config() -> Type[FairseqDataclass]:
    """A dataclass with the base options and those of every registered masker.

    Raises:
        ValueError: a masker's option has the name of a base option.
    """
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
    """A dataclass field like another, for a class of its own."""
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
