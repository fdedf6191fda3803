"""The table of cases: every registered thing that trains. ``test_cases.py`` runs each: it is what the registry returns,
trains through ``--user-dir``, resumes to the same numbers, and trains on two ranks that stay bit-equal.

A case gives the options on top of ``harness.TINY`` (a later option overrides an earlier one) and what is registered.
"""

from typing import NamedTuple, Tuple

import harness


class Case(NamedTuple):
    name: str
    options: Tuple[str, ...]  # "{corpus}" stands for the folder of the corpus fixture
    registry: str  # "task", "criterion", "masker", "model" or "optimizer"
    registered: str  # name in that registry
    cls: str  # name of the class that the registry returns
    base: Tuple[str, ...] = tuple(harness.TINY + harness.MLM)
    once: bool = False  # differs from another case in what has nothing to do with fairseq's generation: marked so


def _case(name, options, registry, registered, cls, **kwargs):
    return Case(name, tuple(options.split()), registry, registered, cls, **kwargs)


SP = "--bpe sentencepiece --sentencepiece-model {corpus}/sp.model"

CASES = [
    _case("plain", "", "task", "decoupled_mlm", "DecoupledMLMTask"),
    _case(
        "decoupled",
        "--corruption-rate 0.2 --prediction-rate 0.5 --random-token-prob 0.1 --leave-unmasked-prob 0.1",
        "criterion",
        "decoupled_mlm",
        "DecoupledMLMCriterion",
    ),
    _case("stock_criterion", "--criterion masked_lm --masker uniform", "masker", "uniform", "UniformMasker"),
    _case("whole_word", f"--masker whole_word {SP}", "masker", "whole_word", "WholeWordMasker", once=True),
    _case("span", f"--masker span {SP}", "masker", "span", "SpanMasker"),
    _case("span_token", "--masker span --span-unit token --random-token-prob 0.1", "masker", "span", "SpanMasker", once=True),
    _case("pmi", f"--masker pmi --pmi-vocab {{corpus}}/phrases.txt {SP}", "masker", "pmi", "PMIMasker", once=True),
    _case(
        "droptoken",
        "--arch droptoken_roberta_base --drop-token-prob 0.3 --drop-token-warmup-updates 2 --update-freq 2",
        "model",
        "droptoken_roberta_base",
        "DropTokenRobertaModel",
    ),
    _case(
        "droptoken_finetune",
        "--arch droptoken_roberta_prenorm --drop-token-prob 0.3 --drop-token-from-layer 1 --checkpoint-activations",
        "model",
        "droptoken_roberta_prenorm",
        "DropTokenRobertaModel",
        base=tuple(harness.TINY + harness.LABELLED),
    ),
    _case(
        "mae",
        "--arch mae_roberta_base --decoder-layers 1 --corruption-rate 0.3 --prediction-rate 0.5 "
        "--random-token-prob 0.1 --leave-unmasked-prob 0.1",
        "model",
        "mae_roberta_base",
        "MAERobertaModel",
    ),
    _case(
        "mapnet",
        f"--criterion mapnet --mapnet-warmup-updates 1 --mapnet-embed-dim 16 --mapnet-lr-scale 3 --update-freq 2 {SP}",
        "criterion",
        "mapnet",
        "MapNetCriterion",
    ),
    _case(
        "mapnet_shared",
        "--criterion mapnet --mapnet-share-embeddings --mapnet-warmup-updates 0 --arch mae_roberta_base "
        "--corruption-rate 0.3 --prediction-rate 0.5 --random-token-prob 0.1 --mapnet-layers 1",
        "criterion",
        "mapnet",
        "MapNetCriterion",
    ),
    _case("schedule", "--mask-prob 0.6 --mask-prob-final 0.2", "task", "decoupled_mlm", "DecoupledMLMTask", once=True),
    _case("child_adam", "--optimizer child_tuning_adam --amp", "optimizer", "child_tuning_adam", "ChildTuningAdam"),
    _case(
        "child_sgd",
        "--optimizer child_tuning_sgd --momentum 0.9 --child-tuning-target update --lr 0.1",
        "optimizer",
        "child_tuning_sgd",
        "ChildTuningSGD",
    ),
]
