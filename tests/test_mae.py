"""MAE: equality with the attention-masked twin, what each part sees, and the way of its checkpoints."""

import copy

import harness
import numpy as np
import pytest
import torch
from reference.attention_masked import encode_attention_masked
from tiny_roberta import Task, assert_close_gradients, build, gradients, make_dictionary, make_rows

from fairseq_maskplugins.compat import is_inference_copy
from fairseq_maskplugins.errors import UsageError
from fairseq_maskplugins.mae.decode import choose_visible

LENGTHS = (12, 3, 9, 12, 2, 7)


def build_mae(dictionary, arch="mae_roberta_base", **options):
    task = Task(dictionary)
    task.mask_idx = dictionary.index("<mask>")
    return build(arch, dictionary, task=task, **options)


def make_batch(dictionary, rate=0.5, seed=0):
    """Rows with ``<mask>`` at some positions, and those that are predicted: hidden ones, and a few visible."""
    generator = torch.Generator().manual_seed(seed)
    tokens = make_rows(dictionary, LENGTHS)
    words = tokens.ne(dictionary.pad()) & tokens.ne(dictionary.bos()) & tokens.ne(dictionary.eos())
    hidden = words & (torch.rand(tokens.shape, generator=generator) < rate)
    predicted = hidden & (torch.rand(tokens.shape, generator=generator) < 0.8)
    predicted |= words & (torch.rand(tokens.shape, generator=generator) < 0.2)
    return tokens.masked_fill(hidden, dictionary.index("<mask>")), hidden, predicted


def forward_attention_masked(model, tokens, hidden):
    """Logits of all positions, without packing anything."""
    decoder = model.mae_decoder
    encoded = encode_attention_masked(model.encoder.sentence_encoder, tokens, hidden)
    x = torch.where(hidden.unsqueeze(-1), decoder.mask.expand(*hidden.shape, -1), decoder.shrink(encoded))
    x = decoder.stack(tokens, token_embeddings=x)["encoder_out"][0].transpose(0, 1)
    return model.encoder.lm_head(decoder.grow(x))


@pytest.mark.parametrize("pad", [1, 3])
@pytest.mark.parametrize("arch", ["mae_roberta_base", "mae_roberta_prenorm"])
def test_equals_the_attention_masked_twin(arch, pad):
    dictionary = make_dictionary(pad=pad)
    model = build_mae(dictionary, arch)
    twin = copy.deepcopy(model)
    tokens, hidden, predicted = make_batch(dictionary)
    assert hidden.sum() > 10 and (predicted & ~hidden).any() and (hidden & ~predicted).any()
    logits = model(tokens, masked_tokens=predicted)[0]
    expected = forward_attention_masked(twin, tokens, hidden)[predicted]
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    weight = torch.randn(logits.shape, generator=torch.Generator().manual_seed(4))
    (logits * weight).sum().backward()
    (expected * weight).sum().backward()
    assert_close_gradients(gradients(model), gradients(twin))


def test_checkpointed_layers_give_the_same():
    dictionary = make_dictionary()
    tokens, _, predicted = make_batch(dictionary)
    results = []
    for checkpointing in (False, True):
        model = build_mae(dictionary, checkpoint_activations=checkpointing)
        logits = model(tokens, masked_tokens=predicted)[0]
        logits.square().sum().backward()
        results.append({"logits": logits.detach(), **gradients(model)})
    assert_close_gradients(*results, tolerance=1e-6)


def test_encoder_never_sees_the_mask_token_and_works_on_short_rows():
    dictionary = make_dictionary()
    model = build_mae(dictionary, untie_weights_roberta=True)
    tokens, hidden, predicted = make_batch(dictionary)
    shapes = {}
    for part, stack in (("encoder", model.encoder.sentence_encoder), ("decoder", model.mae_decoder.stack)):
        for layer in stack.layers:
            layer.fc1.register_forward_hook(
                lambda module, inputs, output, part=part: shapes.setdefault(part, []).append(tuple(inputs[0].shape))
            )
    model(tokens, masked_tokens=predicted)[0].sum().backward()
    visible = int((tokens.ne(1) & ~hidden).sum(1).max())
    assert visible < tokens.size(1)
    assert shapes == {"encoder": [(visible, 6, 16)] * 3, "decoder": [(12, 6, 8)] * 2}
    assert not model.encoder.sentence_encoder.embed_tokens.weight.grad[dictionary.index("<mask>")].any()


def test_replaced_and_unchanged_tokens_are_visible_as_they_are():
    """A predicted position that holds a token, not <mask>, reaches the encoder with that token."""
    dictionary = make_dictionary()
    model = build_mae(dictionary)
    tokens, hidden, predicted = make_batch(dictionary)
    row, column = [int(i[0]) for i in (predicted & ~hidden).nonzero(as_tuple=True)]
    logits = model(tokens)[0]
    other = tokens.clone()
    other[row, column] = tokens[row, column] % 19 + 4
    assert other[row, column] != tokens[row, column]
    changed = (model(other)[0] - logits).abs().amax(-1) > 1e-4
    assert changed[row, : LENGTHS[row]].all() and not changed[[i for i in range(6) if i != row]].any()


def test_logits_of_all_positions_where_nothing_says_which():
    dictionary = make_dictionary()
    model = build_mae(dictionary)
    tokens, _, predicted = make_batch(dictionary)
    logits = model(tokens)[0]
    assert logits.shape == (*tokens.shape, len(dictionary))
    torch.testing.assert_close(logits[predicted], model(tokens, masked_tokens=predicted)[0])


def test_a_row_that_shows_nothing_keeps_its_first_token():
    tokens = np.array([[9, 9, 9], [9, 5, 1], [9, 1, 1], [1, 1, 9], [5, 6, 7]])
    visible = choose_visible(tokens, tokens != 1, 9)
    assert visible.astype(int).tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 1, 1]]
    dictionary = make_dictionary()
    model = build_mae(dictionary)
    rows = make_rows(dictionary, LENGTHS)
    rows[1] = rows[1].masked_fill(rows[1].ne(1), dictionary.index("<mask>"))
    logits = model(rows)[0]
    logits.sum().backward()
    assert torch.isfinite(logits).all() and all(torch.isfinite(g).all() for g in gradients(model).values())


def test_evaluation_after_loading_equals_training_without_dropout():
    """Loaded, never trained layers take a fused path in upstream fairseq, which wants another layout."""
    dictionary = make_dictionary()
    model = build_mae(dictionary, activation_fn="relu")  # it knows torch's relu; gelu is fairseq's own function
    tokens, _, predicted = make_batch(dictionary)
    loaded = build_mae(dictionary, seed=5, activation_fn="relu")
    loaded.load_state_dict(model.state_dict())
    loaded.eval()
    with torch.no_grad():
        result = loaded(tokens, masked_tokens=predicted)[0]
    torch.testing.assert_close(result, model(tokens, masked_tokens=predicted)[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("arch", ["mae_roberta_base", "mae_roberta_prenorm"])
def test_checkpoints_to_and_from_roberta(arch, caplog):
    caplog.set_level("INFO")
    dictionary = make_dictionary()
    model = build_mae(dictionary, arch)
    plain = build(arch.replace("mae_", ""), dictionary, seed=5)
    plain.load_state_dict(copy.deepcopy(model.state_dict()))
    tokens = make_rows(dictionary, LENGTHS)
    features = model(tokens, features_only=True)[0]
    assert torch.equal(plain(tokens, features_only=True)[0], features)
    # and under a task that masks nothing
    tuned = build(arch, dictionary, seed=6)
    assert tuned.mae_decoder is None
    tuned.load_state_dict(copy.deepcopy(model.state_dict()))
    assert torch.equal(tuned(tokens, features_only=True)[0], features)
    # a decoder of other sizes is no decoder to go on with
    for options in ({"decoder_layers": 3}, {"decoder_embed_dim": 24}):
        with pytest.raises(UsageError, match="its MAE decoder has other sizes than this one"):
            build_mae(dictionary, arch, **options).load_state_dict(copy.deepcopy(model.state_dict()))
    # version 0.1 had another name for the decoder
    old = {key.replace("encoder.regression_head.", "mae_decoder."): value for key, value in model.state_dict().items()}
    resumed = build_mae(dictionary, arch, seed=8)
    resumed.load_state_dict(old)
    for key, value in model.state_dict().items():
        assert is_inference_copy(key) or torch.equal(value, resumed.state_dict()[key]), key
    # a plain checkpoint starts an MAE, whose decoder stays as it was initialised
    begun = build_mae(dictionary, arch, seed=7)
    before = copy.deepcopy(begun.mae_decoder.state_dict())
    begun.load_state_dict(copy.deepcopy(plain.state_dict()))
    assert "the checkpoint has no MAE decoder" in caplog.text
    assert torch.equal(begun(tokens, features_only=True)[0], features)
    after = begun.mae_decoder.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before if not is_inference_copy(key))


def test_checkpoint_fine_tunes_as_plain_roberta(corpus, tmp_path):
    options = "--arch mae_roberta_base --max-update 2 --mask-prob 0.5".split()
    stock = "--task masked_lm --criterion masked_lm --tokens-per-sample 32 --sample-break-mode none --batch-size 8".split()
    harness.train(corpus / "bin", tmp_path / "mae", *options, base=harness.TINY + stock)
    source = tmp_path / "mae" / "checkpoint_last.pt"
    options = ["--max-update", 1, "--lr", 0, "--finetune-from-model", source]
    log = harness.train(corpus / "bin", tmp_path / "tuned", *options, base=harness.TINY + harness.LABELLED)
    before, after = (harness.load_weights(tmp_path / name / "checkpoint_last.pt") for name in ("mae", "tuned"))
    assert all(torch.equal(after[name], before[name]) for name in before if not name.startswith("encoder.regression_head."))
    # pretraining goes on with the same decoder only
    options = "--arch mae_roberta_base --max-update 4 --decoder-layers 3 --finetune-from-model".split() + [source]
    log = harness.train(corpus / "bin", tmp_path / "other", *options, base=harness.TINY + stock, check=False)
    assert log.returncode == 1 and "fairseq_maskplugins: its MAE decoder has other sizes" in log.text


@pytest.mark.parametrize(
    "options, text",
    [
        (dict(decoder_layers=0), "--decoder-layers must be 1 or more, got 0"),
        (dict(decoder_embed_dim=-4), "--decoder-embed-dim must be 1 or more, got -4"),
        (dict(decoder_attention_heads=3), "--decoder-attention-heads must divide --decoder-embed-dim, 8, got 3"),
        (
            dict(decoder_embed_dim=12, quant_noise_pq=0.1, quant_noise_pq_block_size=8),
            "--decoder-embed-dim must be a multiple of --quant-noise-pq-block-size, 8, got 12",
        ),
    ],
)
def test_bad_options_are_refused(options, text):
    with pytest.raises(UsageError, match=text):
        build_mae(make_dictionary(), **options)


def test_default_heads_divide_any_width():
    """One per 64 of 200 would be 3, which does not divide it and which no option asked for."""
    dictionary = make_dictionary()
    found = {}
    for width in (1, 8, 100, 200, 384, 512, 640):
        layers = build_mae(dictionary, decoder_layers=1, decoder_embed_dim=width).mae_decoder.stack.layers
        found[width] = layers[0].self_attn.num_heads
    assert found == {1: 1, 8: 1, 100: 1, 200: 2, 384: 6, 512: 8, 640: 10}
