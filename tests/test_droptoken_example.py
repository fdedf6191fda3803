"""``examples/droptoken``: the model that it fine-tunes is the checkpoint's."""

import importlib.util
import sys
from argparse import Namespace

import harness
import pytest
import torch
from fairseq import options as fairseq_options

SIZES = dict(encoder_layers=3, encoder_embed_dim=16, encoder_ffn_embed_dim=24, encoder_attention_heads=2, max_positions=9)


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("droptoken_example", harness.ROOT / "examples" / "droptoken" / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("prenorm, norm, untied", [(False, True, True), (True, False, False), (True, True, False)])
def test_model_has_the_sizes_of_the_checkpoint(example, tmp_path, prenorm, norm, untied, old):
    switches = dict(encoder_normalize_before=prenorm, layernorm_embedding=norm, untie_weights_roberta=untied)
    recorded = Namespace(**SIZES, **switches)
    torch.save({"model": {}, **({"args": recorded} if old else {"cfg": {"model": recorded}})}, tmp_path / "c.pt")
    model = example.model_options(tmp_path / "c.pt", "droptoken_roberta")
    command = ["data", "--user-dir", harness.USER_DIR, *harness.LABELLED, *model]
    args = fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), [str(x) for x in command])
    expected = {**SIZES, **switches}
    assert args.arch.startswith("droptoken_roberta")
    assert {name: getattr(args, name) for name in expected} == expected


def test_files_of_a_pretrained_model_come_together(example, tmp_path, monkeypatch):
    (tmp_path / "c.pt").touch()
    monkeypatch.setattr(sys, "argv", ["run.py", "--out", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "c.pt")])
    with pytest.raises(SystemExit, match="--sentencepiece-model: a pretrained model takes all of --checkpoint, .* got none"):
        example.main()
    assert not (tmp_path / "out").exists()
