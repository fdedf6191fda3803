"""MAP-Net's options and their ranges."""

from dataclasses import dataclass, field
from typing import Any

from fairseq.dataclass import FairseqDataclass
from omegaconf import II

from ..errors import UsageError

WEIGHTS = ("inclusion", "none")


@dataclass
class MapNetCriterionConfig(FairseqDataclass):
    mapnet_layers: int = field(default=2, metadata={"help": "layers of the proposer, 0 to 1000"})
    mapnet_embed_dim: int = field(default=128, metadata={"help": "width of the proposer"})
    mapnet_attention_heads: int = field(default=2, metadata={"help": "heads of the proposer, a divisor of its width"})
    mapnet_share_embeddings: bool = field(
        default=False, metadata={"help": "the proposer reads the model's token embeddings, without training them"}
    )
    mapnet_temperature: float = field(
        default=1.0, metadata={"help": "scores are divided by this, in [0.001, 1000]; large: uniform, near 0: always the same"}
    )
    mapnet_uniform_mix: float = field(
        default=0.5, metadata={"help": "fraction of the uniform proposal in the mixture, in [0, 1]; 1: uniform masks"}
    )
    mapnet_beta: float = field(
        default=1.0, metadata={"help": "sharpness of preferences, in [0.001, 1000]; the larger, the flatter the proposal"}
    )
    mapnet_margin: float = field(
        default=0.0, metadata={"help": "pairs teach where their mean losses differ by more than this, in nats; 0 or more"}
    )
    mapnet_weights: str = field(
        default="inclusion", metadata={"help": "inclusion: the model's loss is weighted by importance; none: it is not"}
    )
    max_importance_weight: float = field(
        default=5.0, metadata={"help": "clip weights at this multiple of their mean, 1 or more; inf: never"}
    )
    mapnet_warmup_updates: int = field(
        default=1000, metadata={"help": "masks are uniform for so many updates, while the proposer learns; 0 or more"}
    )
    mapnet_lr_scale: float = field(
        default=1.0, metadata={"help": "the proposer's learning rate relative to --lr, in [0.001, 1000]"}
    )
    # not options: values of other parts of the configuration
    seed: int = II("common.seed")
    ddp_backend: str = II("distributed_training.ddp_backend")


def check_options(cfg: Any) -> None:
    """Refuse values out of range, each in one line.

    Raises:
        UsageError: an option's value, or a DDP backend that can't hold a criterion with parameters.
    """
    for name, good, rule in (
        ("mapnet_layers", 0 <= cfg.mapnet_layers <= 1000, "lie in [0, 1000]"),
        ("mapnet_embed_dim", cfg.mapnet_embed_dim >= 1, "be 1 or more"),
        ("mapnet_attention_heads", cfg.mapnet_attention_heads >= 1, "be 1 or more"),
        ("mapnet_temperature", 1e-3 <= cfg.mapnet_temperature <= 1e3, "lie in [0.001, 1000]"),
        ("mapnet_uniform_mix", 0 <= cfg.mapnet_uniform_mix <= 1, "lie in [0, 1]"),
        ("mapnet_beta", 1e-3 <= cfg.mapnet_beta <= 1e3, "lie in [0.001, 1000]"),
        ("mapnet_margin", 0 <= cfg.mapnet_margin < float("inf"), "be 0 or more"),
        ("max_importance_weight", cfg.max_importance_weight >= 1, "be 1 or more"),
        ("mapnet_warmup_updates", cfg.mapnet_warmup_updates >= 0, "be 0 or more"),
        ("mapnet_lr_scale", 1e-3 <= cfg.mapnet_lr_scale <= 1e3, "lie in [0.001, 1000]"),
    ):
        if not good:
            raise UsageError(f"{_flag(name)} must {rule}, got {getattr(cfg, name):g}")
    if cfg.mapnet_embed_dim % cfg.mapnet_attention_heads:
        raise UsageError(
            f"--mapnet-attention-heads must divide --mapnet-embed-dim, {cfg.mapnet_embed_dim}, got {cfg.mapnet_attention_heads}"
        )
    if cfg.mapnet_weights not in WEIGHTS:
        raise UsageError(f"--mapnet-weights must be one of {', '.join(WEIGHTS)}, got {cfg.mapnet_weights!r}")
    for backend, does in (("fully_sharded", "can't shard"), ("slowmo", "never averages over ranks with this one")):
        if cfg.ddp_backend == backend:
            raise UsageError(
                f"--criterion mapnet has parameters of its own, which fairseq {does}: give --ddp-backend pytorch_ddp or "
                f"legacy_ddp, got {backend}"
            )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
