"""What the options of ``--task decoupled_mlm`` may be, beside its rates (no fairseq here)."""

from typing import Any

from ..errors import UsageError
from ..maskers.base import MASKERS
from .plan import BUDGETS


def check_options(cfg: Any) -> None:
    """Refuse values and combinations that can't be, and options of other tasks.

    Args:
        cfg: the task's configuration, with what it takes over from other groups.

    Raises:
        UsageError: names the option, the rule and the value.
    """
    p_random, p_same = cfg.random_token_prob, cfg.leave_unmasked_prob
    for name, value in (("--random-token-prob", p_random), ("--leave-unmasked-prob", p_same)):
        if not 0.0 <= value <= 1.0:
            raise UsageError(f"{name} must lie in [0, 1], got {value:g}")
    if p_random + p_same > 1.0 + 1e-9:
        raise UsageError(
            f"--random-token-prob and --leave-unmasked-prob must add up to at most 1, got {p_random:g} + {p_same:g}"
        )
    if cfg.masker not in MASKERS:
        raise UsageError(f"--masker must be one of {', '.join(sorted(MASKERS))}, got {cfg.masker!r}")
    if cfg.mask_whole_words and cfg.masker not in ("uniform", "whole_word"):
        raise UsageError(f"--mask-whole-words is --masker whole_word, and can't go with --masker {cfg.masker}")
    if cfg.mask_budget is not None and cfg.mask_budget not in BUDGETS:
        raise UsageError(f"--mask-budget must be one of {', '.join(BUDGETS)}, got {cfg.mask_budget!r}")
    if cfg.mask_multiple_length < 1:
        raise UsageError(f"--mask-multiple-length must be at least 1, got {cfg.mask_multiple_length}")
    if not 0.0 <= cfg.mask_stdev < float("inf"):
        raise UsageError(f"--mask-stdev must be 0 or more, got {cfg.mask_stdev:g}")
    if cfg.tokens_per_sample < 2:
        raise UsageError(f"--tokens-per-sample must be at least 2, <s> and a token, got {cfg.tokens_per_sample}")
    if cfg.tokens_per_sample >= 2**31:
        raise UsageError(f"--tokens-per-sample must be below 2^31, got {cfg.tokens_per_sample}")
    if getattr(cfg, "tpu", False):
        advice = ""
        if getattr(cfg, "bf16", False):
            advice = ": fairseq-train takes --bf16 for a TPU's; on GPUs give fairseq-hydra-train common.bf16=true"
        raise UsageError(f"--tpu can't go with --task decoupled_mlm{advice}")
    if getattr(cfg, "pipeline_model_parallel", False):
        raise UsageError(
            "--pipeline-model-parallel can't go with --task decoupled_mlm: no masked language model has it"
        )
    if (getattr(cfg, "model_parallel_size", 1) or 1) > 1:
        raise UsageError(
            f"--model-parallel-size must be 1 with --task decoupled_mlm, whose losses need whole logits, got "
            f"{cfg.model_parallel_size}"
        )
    for name in ("skip_masking", "d2v2_multi"):
        if getattr(cfg, name, False):
            raise UsageError(
                f"--{name.replace('_', '-')} is for data2vec, which masks in the model: use --task masked_lm"
            )
