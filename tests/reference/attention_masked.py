"""What DropToken and MAE must equal at the tokens they keep: the full-length encoder, with the removed columns masked
out of every attention matrix. Slow, and checked by eye."""


def encode_attention_masked(encoder, tokens, removed, from_layer=0):
    """Features ``[B, T, C]`` of a fairseq ``TransformerEncoder``; those at removed tokens mean nothing."""
    padding = tokens.eq(encoder.padding_idx)
    x = encoder.forward_embedding(tokens)[0]
    x = x * (~padding).unsqueeze(-1)
    x = x.transpose(0, 1)
    for number, layer in enumerate(encoder.layers):
        hidden = padding | removed if number >= from_layer else padding
        x = layer(x, encoder_padding_mask=hidden)
    if encoder.layer_norm is not None:
        x = encoder.layer_norm(x)
    return x.transpose(0, 1)
