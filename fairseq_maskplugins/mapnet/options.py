"""The ranges of MAP-Net's options (no fairseq)."""

from typing import Any

from ..errors import UsageError

WEIGHTS = ("inclusion", "none")


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
            f"--mapnet-attention-heads must divide --mapnet-embed-dim, {cfg.mapnet_embed_dim}, got "
            f"{cfg.mapnet_attention_heads}"
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
