"""The package as a library: without fairseq, in plain PyTorch and in transformers' Trainer."""

import copy
import subprocess
import sys

import harness
import pytest
import torch
from fairseq import optim as fairseq_optim
from omegaconf import OmegaConf

from fairseq_maskplugins.child_tuning.adamw import ChildTuningAdamW
from fairseq_maskplugins.decoupled_mlm.batch import mask_batch
from fairseq_maskplugins.decoupled_mlm.rates import Rates
from fairseq_maskplugins.errors import UsageError
from fairseq_maskplugins.maskers import make_masker
from fairseq_maskplugins.vocabulary import Vocabulary

EXAMPLE = harness.ROOT / "examples" / "transformers"
sys.path.insert(0, str(EXAMPLE))

SHAPES = [(7, 5), (5,), (300, 10)]


def parameters():
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES]


def steps(optimizer, params, first, last):
    for update in range(first, last):
        generator = torch.Generator().manual_seed(update)
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.step()
    return [p.detach().clone() for p in params]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other))


def test_optimizer_equals_fairseqs():
    options = dict(lr=1e-2, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1, reserve_p=0.4, seed=5)
    plain = parameters()
    result = steps(ChildTuningAdamW(plain, **options), plain, 0, 5)
    theirs = parameters()
    cfg = OmegaConf.create(
        {
            "optimizer": {
                "_name": "child_tuning_adam", "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-6, "weight_decay": 0.1,
                "reserve_p": 0.4,
            },
            "common": {"seed": 5, "tpu": False},
            "optimization": {"lr": [1e-2], "use_bmuf": False},
            "distributed_training": {"ddp_backend": "legacy_ddp", "pipeline_model_parallel": False},
        }
    ).optimizer  # fmt: skip
    assert same(result, steps(fairseq_optim.build_optimizer(cfg, theirs), theirs, 0, 5))


def test_optimizer_resumes_with_a_scheduler_and_groups():
    def make(params):
        groups = [{"params": params[:1]}, {"params": params[1:], "weight_decay": 0.0}]
        optimizer = ChildTuningAdamW(groups, lr=1e-2, weight_decay=0.1)
        return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)

    whole = parameters()
    optimizer, _ = make(whole)
    steps(optimizer, whole, 0, 3)
    state, middle = copy.deepcopy(optimizer.state_dict()), [p.detach().clone() for p in whole]
    result = steps(optimizer, whole, 3, 6)
    resumed = parameters()
    for p, value in zip(resumed, middle):
        p.data.copy_(value)
    optimizer, _ = make(resumed)
    optimizer.load_state_dict(state)
    assert isinstance(optimizer, torch.optim.Optimizer) and same(result, steps(optimizer, resumed, 3, 6))


def test_fixed_masks_move_the_child_alone():
    params, masks = parameters(), [torch.rand(SHAPES[0]) < 0.3, None, torch.zeros(SHAPES[2], dtype=torch.bool)]
    before = [p.detach().clone() for p in params]
    after = steps(ChildTuningAdamW(params, mode="D", masks=masks, reserve_p=0.3), params, 0, 2)
    moved = [a != b for a, b in zip(before, after)]
    assert torch.equal(moved[0], masks[0]) and moved[1].all() and not moved[2].any()


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(reserve_p=0.0), r"--reserve-p must lie in \(0, 1\], got 0.0"),
        (dict(mode="G"), "--child-tuning-mode must be one of F, D"),
        (dict(mode="D"), "masks must be given in mode D"),
        (dict(masks=[None] * 3), "masks must be given in mode D, and only there"),
        (dict(mode="D", masks=[None]), "for each parameter, None or a bool tensor of its shape"),
        (dict(mode="D", masks=[torch.ones(2, dtype=torch.bool), None, None]), "for each parameter, None or a bool"),
    ],
)
def test_wrong_options_of_the_optimizer(options, message):
    with pytest.raises(UsageError, match=message):
        ChildTuningAdamW(parameters(), **{**options, "masks": options.get("masks")})


def make_tokenizer(kind):
    """A tokenizer of transformers with a vocabulary of its own; entries that begin words, and one that does not."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    mark, inner = {"wordpiece": ("", "##"), "bytes": ("\u0120", ""), "sentencepiece": ("\u2581", "")}[kind]
    words = [mark + word for word in "the old captain saw a ship in new york and sang".split()] + [inner + "s", inner + "ing"]
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, "[unused0]"]
    vocab = {entry: number for number, entry in enumerate(entries)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Whitespace(), decoders.WordPiece()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]",
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["wordpiece", "bytes", "sentencepiece"])
def test_vocabulary_of_a_tokenizer(kind):
    tokenizer = make_tokenizer(kind)
    vocabulary = Vocabulary.from_transformers(tokenizer)
    assert len(vocabulary) == len(tokenizer) == 19
    assert (vocabulary.pad, vocabulary.bos, vocabulary.eos, vocabulary.mask) == (0, 2, 3, 4)
    assert not vocabulary.maskable[:5].any() and vocabulary.maskable[5:].all()
    assert 18 not in vocabulary.replacements and set(range(5, 18)) == set(vocabulary.replacements.tolist())
    begins = vocabulary.find_word_begins()
    assert begins[5:16].all() and not begins[16:18].any()
    assert vocabulary.find_pieces()[5:8] == [b"the", b"old", b"captain"] and vocabulary.find_pieces()[17] == b"ing"
    tokenizer.mask_token = None
    with pytest.raises(UsageError, match="the tokenizer must have a mask token"):
        Vocabulary.from_transformers(tokenizer)


def test_wrong_maskers():
    vocabulary = Vocabulary.from_transformers(make_tokenizer("wordpiece"))
    with pytest.raises(UsageError, match="masker must be one of .*uniform.*, got 'spam'"):
        make_masker("spam", vocabulary)
    with pytest.raises(UsageError, match="masker span has the options span_geometric_p, .*, got 'length'"):
        make_masker("span", vocabulary, length=3)
    with pytest.raises(UsageError, match="--span-max-length must lie in"):
        make_masker("span", vocabulary, span_max_length=0)


@pytest.mark.parametrize("rates", [(0.4, 0.4), (0.4, 0.2), (0.2, 0.4)])
def test_masks_are_those_of_the_task(data_bin, rates):
    options = ["--corruption-rate", rates[0], "--prediction-rate", rates[1], "--random-token-prob", 0.2]
    task = harness.make_task(data_bin, *map(str, options))[0]
    task.load_dataset("train")
    dataset = task.datasets["train"]
    dataset.set_epoch(3)
    sample = dataset.collater([dataset[i] for i in (5, 1, 8)])
    masked = task.mask_batch(sample, Rates(*rates))
    masker = make_masker("uniform", task.planner.vocabulary)
    tokens, ids = sample["net_input"]["src_tokens"], sample["id"]
    for given in (tokens, tokens.numpy()):
        batch = mask_batch(
            given, masker, Rates(*rates), task.cfg.seed, 3, ids, random_token_prob=0.2, ignore_index=task.dictionary.pad()
        )
        assert torch.equal(batch.source, masked["net_input"]["src_tokens"])
        assert torch.equal(batch.target, masked["target"])
        assert torch.equal(tokens[batch.sequence], masked["tokens"])
    with pytest.raises(UsageError, match="add up to at most 1, got 0.7 and 0.7"):
        mask_batch(tokens, masker, Rates(*rates), 1, 1, ids, random_token_prob=0.7, leave_unmasked_prob=0.7)
    with pytest.raises(UsageError, match="tokens must be .* and 2 ids"):
        mask_batch(tokens, masker, Rates(*rates), 1, 1, ids[:2])


def test_example_trains_with_transformers(tmp_path):
    from collator import MaskingCollator
    from transformers import BertConfig, BertForMaskedLM

    tokenizer = make_tokenizer("wordpiece")
    collator = MaskingCollator(tokenizer, masker="span", corruption_rate=0.3, prediction_rate=0.6, span_max_length=2)
    text = "the old captains saw a ship in new york and sang"
    dataset = [{"input_ids": tokenizer(text)["input_ids"], "idx": i} for i in range(12)]
    batch = collator(dataset[:4])
    assert batch["input_ids"].shape == batch["labels"].shape == batch["attention_mask"].shape and len(batch["labels"]) == 8
    assert torch.equal(collator(dataset[2:3])["input_ids"], batch["input_ids"][4:6])
    predicted = batch["labels"] != -100
    assert (batch["input_ids"][predicted] == tokenizer.mask_token_id).all() and predicted.any()
    model = BertForMaskedLM(
        BertConfig(vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    )
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "text").write_text((text + "\n") * 12)
    options = "--masker span --epochs 2 --batch-size 4 --lr 1e-3 --reserve-p 0.3".split()
    command = [sys.executable, EXAMPLE / "run.py", tmp_path / "model", tmp_path / "text", tmp_path / "out", *options]
    done = harness.run(command, check=True, env={"CUDA_VISIBLE_DEVICES": ""})
    assert "'train_loss'" in done.stdout and "'epoch': 2.0" in done.stdout
    trained = BertForMaskedLM.from_pretrained(tmp_path / "out").state_dict()
    assert any(not torch.equal(trained[name], tensor) for name, tensor in model.state_dict().items())


def test_collator_has_new_masks_each_epoch():
    from types import SimpleNamespace

    from collator import MaskingCollator

    tokenizer = make_tokenizer("wordpiece")
    collator = MaskingCollator(tokenizer)
    examples = [{"input_ids": tokenizer("the old captain saw a ship")["input_ids"], "idx": i} for i in range(20)]
    masks = []
    for epoch in (0.0, 1.0, 0.0):
        collator.on_epoch_begin(None, SimpleNamespace(epoch=epoch), None)
        masks.append(collator(examples)["input_ids"])
    assert not torch.equal(masks[0], masks[1]) and torch.equal(masks[0], masks[2])


PATCHES = """
import argparse, importlib, sys
for name in ("tasks", "models", "criterions", "optim", "trainer", "checkpoint_utils", "data", "distributed.utils", "file_io",
             "fp16_trainer", "models.roberta", "optim.fp16_optimizer", "data.indexed_dataset", "modules"):
    try: importlib.import_module("fairseq." + name)
    except ImportError: pass
import fairseq_cli.train
def attributes():
    found = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] not in ("fairseq", "fairseq_cli") or module is None: continue
        for key, value in list(vars(module).items()):
            found[name + "." + key] = value
            if isinstance(value, type) and value.__module__ == name:
                found.update({f"{name}.{key}.{k}": v for k, v in vars(value).items()})
    return found
before = attributes()
import fairseq.utils
fairseq.utils.import_user_module(argparse.Namespace(user_dir=sys.argv[1]))
after = attributes()
changed = {name for name in before.keys() | after.keys() if before.get(name) is not after.get(name)}
print(sorted(name for name in changed if name not in sys.modules and name in before or name.count(".") < 2))
"""


def test_only_two_functions_of_fairseq_are_replaced():
    """Registries are filled in place; nothing else of fairseq's modules and classes is another object afterwards."""
    command = [sys.executable, "-c", PATCHES, str(harness.USER_DIR)]
    done = subprocess.run(command, cwd=harness.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == (
        "['fairseq.checkpoint_utils.torch_persistent_save', 'fairseq.file_io.PathManager.copy']"
    )
