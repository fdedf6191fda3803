"""Small RoBERTas of any registered architecture, built in this process, and random rows for them."""

import copy
from argparse import Namespace

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

import fairseq_maskplugins  # noqa: F401  (registers)

SIZES = dict(encoder_layers=3, encoder_embed_dim=16, encoder_ffn_embed_dim=32, encoder_attention_heads=2)


class Task:
    """As much of a task as building a model takes."""

    def __init__(self, dictionary):
        self.source_dictionary = self.dictionary = dictionary


def make_dictionary(words=20, pad=1):
    """``<s>`` 0, ``</s>`` 2, padding at ``pad`` (1 or 3), words, ``<mask>`` last."""
    dictionary = Dictionary()
    dictionary.pad_index, dictionary.unk_index = pad, 4 - pad
    for word in range(words):
        dictionary.add_symbol(f"w{word}")
    dictionary.add_symbol("<mask>")
    return dictionary


def build(arch, dictionary, seed=1, task=None, run_seed=7, **options):
    """A model with fixed initial weights (by ``seed``), no dropout, in training mode."""
    args = dict(SIZES, max_positions=40, seed=run_seed, dropout=0.0, attention_dropout=0.0)
    args = Namespace(arch=arch, **{**args, **options})
    ARCH_CONFIG_REGISTRY[arch](args)
    torch.manual_seed(seed)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, task or Task(dictionary))
    for parameter in model.parameters():  # biases and norms start at 0 and 1, which would hide faults
        parameter.data += 0.1 * torch.randn_like(parameter)
    encoder = model.encoder.sentence_encoder
    for embedding in (encoder.embed_tokens, encoder.embed_positions):
        if hasattr(embedding, "weight"):  # the vector of padding stays zero
            embedding.weight.data[dictionary.pad()] = 0
    return model.train()


def make_rows(dictionary, lengths, seed=0, left=False):
    """``<s>``, random words, ``</s>``, padding to the longest. *Shape:* int64 ``[B, T]``."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.full((len(lengths), max(lengths)), dictionary.pad())
    for row, length in zip(rows, lengths):
        words = torch.randint(4, len(dictionary) - 1, (length - 2,), generator=generator).tolist()
        text = torch.tensor([dictionary.bos(), *words, dictionary.eos()])
        row[slice(len(row) - length, None) if left else slice(0, length)] = text
    return rows


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_close_gradients(one, other, tolerance=1e-5):
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=tolerance, rtol=tolerance, msg=name)


def dropped_by(model, tokens, predicted=None):
    """What the model drops, as a bool ``[B, T]``, found from what it keeps."""
    kept = model.draw_kept(tokens, predicted)
    keep = torch.zeros(len(tokens), kept.width + 1, dtype=torch.bool).scatter_(1, kept.column, True)[:, :-1]
    return ~keep & tokens.ne(model.encoder.dictionary.pad())


def encode(model, tokens, **kwargs):
    return model(tokens, features_only=True, **kwargs)[0]


def state_of(model):
    """A checkpoint of the model, as much of it as exporting takes."""
    return dict(model=copy.deepcopy(model.state_dict()), args=model.args)
