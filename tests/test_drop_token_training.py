"""DropToken in training: its options and draws, checkpoints of stock RoBERTa, and fine-tuning."""

import shutil
from argparse import Namespace

import harness
import pytest
import torch
from tiny_roberta import Task, build, dropped_by, make_dictionary, make_rows

from fairseq_maskplugins.errors import UsageError

LENGTHS = (12, 3, 9, 12, 2, 7)


def test_seed_comes_from_the_model_or_else_from_the_task():
    dictionary = make_dictionary()
    task = Task(dictionary)
    task.cfg = Namespace(seed=5)
    seeds = [build("droptoken_roberta", dictionary, task=task, run_seed=seed).seed for seed in (11, None)]
    assert seeds == [11, 5]


@pytest.mark.parametrize("name", ["droptoken_roberta", "mae_roberta"])
def test_architectures_and_options_are_those_of_roberta(name):
    from argparse import ArgumentParser

    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_REGISTRY

    stock = [arch for arch, model in ARCH_MODEL_REGISTRY.items() if model is MODEL_REGISTRY["roberta"]]
    assert {"roberta", "roberta_base", "roberta_large", "roberta_prenorm", "xlm"} <= set(stock)
    for arch in stock:
        ours = name + ("_xlm" if arch == "xlm" else arch[len("roberta") :])
        assert ARCH_MODEL_REGISTRY[ours] is MODEL_REGISTRY[name]
        one, other = Namespace(), Namespace()
        ARCH_CONFIG_REGISTRY[arch](one), ARCH_CONFIG_REGISTRY[ours](other)
        assert one == other
    options = []
    for model in ("roberta", name):
        parser = ArgumentParser()
        MODEL_REGISTRY[model].add_args(parser)
        options.append({(action.dest, action.default) for action in parser._actions})
    assert options[0] < options[1]


def test_warmup_raises_the_share_linearly():
    model = build("droptoken_roberta", make_dictionary(), drop_token_prob=0.4, drop_token_warmup_updates=10)
    shares = []
    for update in (0, 5, 10, 50):
        model.set_num_updates(update)
        shares.append(model.drop_probability)
    assert shares == [0.0, 0.2, 0.4, 0.4]


def test_ranks_drop_different_tokens(monkeypatch):
    dictionary = make_dictionary()
    model = build("droptoken_roberta", dictionary, drop_token_prob=0.5).train()
    tokens = make_rows(dictionary, [12, 12])
    seen = []
    for rank in (0, 1):
        monkeypatch.setattr("fairseq_maskplugins.drop_token.model.data_parallel_rank", lambda rank=rank: rank)
        seen.append(dropped_by(model, tokens))
    assert not torch.equal(*seen)


def test_draws_move_with_the_update_number_and_not_with_calls():
    model = build("droptoken_roberta", make_dictionary(), drop_token_prob=0.5)
    tokens = make_rows(model.encoder.dictionary, LENGTHS)
    first = dropped_by(model, tokens)
    assert torch.equal(dropped_by(model, tokens), first)
    model.set_num_updates(1)
    assert not torch.equal(dropped_by(model, tokens), first)


@pytest.mark.parametrize(
    "options, text",
    [
        (dict(drop_token_prob=-0.1), r"--drop-token-prob must lie in \[0, 1\], got -0.1"),
        (dict(drop_token_prob=1.5), r"--drop-token-prob must lie in \[0, 1\], got 1.5"),
        (dict(drop_token_prob=float("nan")), r"--drop-token-prob must lie in \[0, 1\], got nan"),
        (dict(drop_token_from_layer=3), r"--drop-token-from-layer must lie in \[0, 2\] with 3 layers, got 3"),
        (dict(drop_token_warmup_updates=-1), "--drop-token-warmup-updates must be 0 or more, got -1"),
    ],
)
def test_bad_options_are_refused(options, text):
    with pytest.raises(UsageError, match=text):
        build("droptoken_roberta", make_dictionary(), **options)


def test_checkpoints_go_both_ways_with_stock_roberta(corpus, tmp_path):
    """Pretrained with DropToken, fine-tuned as plain RoBERTa, and the other way round."""
    mlm, labelled = corpus / "bin", corpus / "bin"
    both = ("roberta_base", "droptoken_roberta_base")
    drop = "--drop-token-prob 0.5".split()
    for arch, other in (both, both[::-1]):
        options = ["--arch", arch, "--max-update", 2] + (drop if arch == both[1] else [])
        harness.train(mlm, tmp_path / arch, *options)
        source = tmp_path / arch / "checkpoint_last.pt"
        options = ["--arch", other, "--max-update", 2, "--finetune-from-model", source, "--lr", "0"]
        options += drop if other == both[1] else []
        log = harness.train(labelled, tmp_path / f"{arch}-tuned", *options, base=harness.TINY + harness.LABELLED)
        assert len(log.losses()) == 2
        before = harness.load_weights(source)
        after = harness.load_weights(tmp_path / f"{arch}-tuned" / "checkpoint_last.pt")
        assert all(torch.equal(before[name], after[name]) for name in before)


def test_sentence_ranking_trains(corpus, tmp_path):
    """Two options of a question, told apart by the head's score of ``<s>``, which is never dropped."""
    for part in ("input0", "input1", "input2"):  # the first has the dictionary
        shutil.copytree(corpus / "bin" / "input0", tmp_path / part)
    for split in ("train", "valid"):
        count = len((corpus / f"{split}.txt").read_text().splitlines())
        (tmp_path / f"{split}.label").write_text("".join(f"{i % 2}\n" for i in range(count)))
    base = (
        "--task sentence_ranking --criterion sentence_ranking --num-classes 2 --init-token 0 --separator-token 2 "
        "--batch-size 4 --skip-invalid-size-inputs-valid-test --ranking-head-name sentence_classification_head "
        "--max-positions 128 --max-update 2 --no-save --arch droptoken_roberta_base --drop-token-prob 0.4"
    ).split()
    log = harness.train(tmp_path, tmp_path / "run", base=harness.TINY + base)
    assert sorted(log.losses()) == [1, 2] and len(log.valid) == 1
