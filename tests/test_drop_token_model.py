"""DropToken in RoBERTa: equality with the attention-masked twin, what it never drops, and what it leaves alone."""

import copy

import numpy as np
import pytest
import torch
from reference.attention_masked import encode_attention_masked
from tiny_roberta import assert_close_gradients, build, dropped_by, encode, gradients, make_dictionary, make_rows

from fairseq_maskplugins.drop_token.keep import pack

LENGTHS = (12, 3, 9, 12, 2, 7)


STYLES = {
    "post-norm": dict(arch="droptoken_roberta_base"),
    "pre-norm": dict(arch="droptoken_roberta_prenorm"),
    "pre-norm, embedding norm": dict(arch="droptoken_roberta_prenorm", layernorm_embedding=True),
    "post-norm, no embedding norm": dict(arch="droptoken_roberta", layernorm_embedding=False),
    "from layer 1": dict(arch="droptoken_roberta", drop_token_from_layer=1),
    "from layer 2, pre-norm": dict(arch="droptoken_roberta_prenorm", drop_token_from_layer=2),
    "checkpointing": dict(arch="droptoken_roberta", checkpoint_activations=True),
    "quantisation noise": dict(arch="droptoken_roberta", quant_noise_pq=0.3, quant_noise_pq_block_size=4),
    "sinusoidal positions": dict(arch="droptoken_roberta", encoder_learned_pos=False),
    "no positions": dict(arch="droptoken_roberta", no_token_positional_embeddings=True),
}


@pytest.mark.parametrize("pad", [1, 3])
@pytest.mark.parametrize("style", STYLES)
def test_equals_the_attention_masked_twin(style, pad):
    dictionary = make_dictionary(pad=pad)
    model = build(dictionary=dictionary, drop_token_prob=0.4, **STYLES[style])
    twin = copy.deepcopy(model)
    if hasattr(model.encoder.sentence_encoder.layers[0], "precheckpoint_forward"):
        # a deep copy's checkpointed layers would call the original's
        twin = build(dictionary=dictionary, **{**STYLES[style], "checkpoint_activations": False})
        twin.load_state_dict(model.state_dict())
    tokens = make_rows(dictionary, LENGTHS)
    dropped = dropped_by(model, tokens)
    keep = ~dropped & tokens.ne(pad)
    assert dropped.sum() > 10 and not dropped[:, 0].any()

    torch.manual_seed(0)
    features = encode(model, tokens)
    torch.manual_seed(0)
    from_layer = STYLES[style].get("drop_token_from_layer", 0)
    expected = encode_attention_masked(twin.encoder.sentence_encoder, tokens, dropped, from_layer)
    assert features.shape == expected.shape
    torch.testing.assert_close(features[keep], expected[keep], atol=1e-5, rtol=1e-5)
    assert (features[~keep] == 0).all()

    weight = torch.randn(keep.sum(), features.size(-1), generator=torch.Generator().manual_seed(4))
    (features[keep] * weight).sum().backward()
    (expected[keep] * weight).sum().backward()
    assert_close_gradients(gradients(model), gradients(twin))


def test_predicted_tokens_stay_and_their_logits_keep_their_order():
    dictionary = make_dictionary()
    for probability in (0.5, 1.0):
        model = build("droptoken_roberta", dictionary, drop_token_prob=probability)
        tokens = make_rows(dictionary, LENGTHS)
        predicted = (torch.rand(tokens.shape, generator=torch.Generator().manual_seed(5)) < 0.3) & tokens.ne(1)
        dropped = dropped_by(model, tokens, predicted)
        assert dropped.any() and not (dropped & predicted).any()
        logits = model(tokens, masked_tokens=predicted)[0]
        features = encode_attention_masked(model.encoder.sentence_encoder, tokens, dropped)
        torch.testing.assert_close(logits, model.encoder.lm_head(features[predicted]), atol=1e-5, rtol=1e-5)
    keep = predicted.clone()
    keep[:, 0] = True
    assert torch.equal(dropped, ~keep & tokens.ne(1))  # at 1 nothing else is left


def test_layers_see_short_rows_and_positions_of_the_full_ones():
    dictionary = make_dictionary()
    model = build("droptoken_roberta", dictionary, drop_token_prob=0.5, drop_token_from_layer=1)
    tokens = make_rows(dictionary, (20, 20, 20))
    shapes = []
    for layer in model.encoder.sentence_encoder.layers:
        layer.fc1.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(inputs[0].shape)))
    _, extra = model(tokens, features_only=True, return_all_hiddens=True)
    kept = int((~dropped_by(model, tokens)).sum(1).max())
    assert kept in (10, 11)
    assert shapes == [(20, 3, 16), (kept, 3, 16), (kept, 3, 16)]
    assert [tuple(state.shape) for state in extra["inner_states"]] == [(20, 3, 16)] * 4


@pytest.mark.parametrize("pad", [1, 3])
def test_kept_tokens_keep_their_positions(pad):
    from fairseq_maskplugins.drop_token.encode import embed_kept

    dictionary = make_dictionary(pad=pad)
    encoder = build("droptoken_roberta", dictionary, layernorm_embedding=False).encoder.sentence_encoder
    tokens = make_rows(dictionary, (7, 7))
    keep = np.zeros((2, 7), bool)
    keep[:, [0, 3, 5]] = True
    kept = pack(keep, np.ones((2, 7), bool), torch.device("cpu"))
    x = embed_kept(encoder, tokens, kept) - encoder.embed_tokens(tokens[:, [0, 3, 5]])
    ids = torch.tensor([pad + 1, pad + 4, pad + 6])
    torch.testing.assert_close(x, encoder.embed_positions.weight[ids].expand_as(x))


def test_positions_where_rows_are_padded_beyond_the_table():
    # every row has padding, as with a required length multiple: the width may exceed --max-positions
    dictionary = make_dictionary()
    model = build("droptoken_roberta", dictionary, drop_token_prob=0.5, max_positions=12)
    tokens = torch.nn.functional.pad(make_rows(dictionary, LENGTHS), (0, 4), value=1)
    assert torch.isfinite(encode(model, tokens)).all()


def test_probability_0_is_stock_to_the_bit():
    dictionary = make_dictionary()
    options = dict(dropout=0.1, attention_dropout=0.1, encoder_layerdrop=0.3)
    tokens = make_rows(dictionary, LENGTHS)
    predicted = tokens.eq(5) | tokens.eq(6)
    results = []
    for arch, more in (("roberta_base", {}), ("droptoken_roberta_base", dict(drop_token_prob=0.0))):
        model = build(arch, dictionary, **options, **more)
        torch.manual_seed(9)
        logits = model(tokens, masked_tokens=predicted)[0]
        logits.square().sum().backward()
        results.append({"logits": logits, **gradients(model)})
    assert results[0].keys() == results[1].keys()
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


def test_nothing_is_dropped_in_evaluation_or_where_all_logits_are_asked_for():
    dictionary = make_dictionary()
    stock = build("roberta_base", dictionary)
    model = build("droptoken_roberta_base", dictionary, drop_token_prob=0.9)
    tokens = make_rows(dictionary, LENGTHS)
    assert torch.equal(model(tokens)[0], stock(tokens)[0])
    assert not torch.equal(encode(model, tokens), encode(stock, tokens))
    model.eval(), stock.eval()
    assert torch.equal(encode(model, tokens), encode(stock, tokens))


def test_side_of_the_padding_does_not_matter():
    dictionary = make_dictionary(pad=3)
    model = build("droptoken_roberta", dictionary, drop_token_prob=0.5)
    right = encode(model, make_rows(dictionary, LENGTHS))
    left = encode(model, make_rows(dictionary, LENGTHS, left=True))
    for one, other, length in zip(left, right, LENGTHS):
        torch.testing.assert_close(one[-length:], other[:length], atol=1e-5, rtol=1e-5)


def test_classification_heads_read_short_rows():
    """As ``sentence_ranking`` calls it: a head's name, and no word of features."""
    dictionary = make_dictionary()
    model = build("droptoken_roberta", dictionary, drop_token_prob=0.5)
    model.register_classification_head("head", num_classes=2)
    tokens = make_rows(dictionary, LENGTHS)
    scores = model(tokens, classification_head_name="head")[0]
    features = encode_attention_masked(model.encoder.sentence_encoder, tokens, dropped_by(model, tokens))
    torch.testing.assert_close(scores, model.classification_heads["head"](features), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("probability", [0.5, 1.0])
def test_rows_of_one_token_and_rows_that_lose_all(probability):
    dictionary = make_dictionary()
    model = build("droptoken_roberta", dictionary, drop_token_prob=probability)
    tokens = torch.tensor([[dictionary.bos(), 1, 1], [dictionary.bos(), 5, dictionary.eos()], [6, 1, 1]])
    features = encode(model, tokens)
    features.sum().backward()
    assert torch.isfinite(features).all() and (features[:, 0] != 0).any(-1).all()
    assert all(torch.isfinite(gradient).all() for gradient in gradients(model).values())
    if probability == 1.0:
        assert (features[:, 1:] == 0).all()
        alone = build("roberta", dictionary)
        torch.testing.assert_close(features[1, 0], encode(alone, tokens[1:2, :1])[0, 0], atol=1e-5, rtol=1e-5)


def test_layerdrop_goes_with_a_start_layer():
    dictionary = make_dictionary()
    options = dict(drop_token_prob=0.5, drop_token_from_layer=2, encoder_layerdrop=0.9)
    model = build("droptoken_roberta", dictionary, **options)
    tokens = make_rows(dictionary, LENGTHS)
    dropped = dropped_by(model, tokens)
    for seed in range(5):  # mostly no layer behind the start is left
        torch.manual_seed(seed)
        features = encode(model, tokens)
        assert (features[dropped] == 0).all() and (features[:, 0] != 0).any(-1).all()
