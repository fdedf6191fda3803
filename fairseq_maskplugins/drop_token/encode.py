"""A Transformer encoder on packed rows (torch, no fairseq: the encoder is used by its attributes).

What comes out equals, at the kept tokens, the same encoder on full rows with the dropped columns masked out of every
attention matrix from ``from_layer`` on; the layers' work shrinks with the rows.
"""

from typing import Any, List, Optional, Tuple

import torch
import torch.nn.functional as F

from .keep import Kept


def take(x: torch.Tensor, kept: Kept) -> torch.Tensor:
    """Kept columns; filler holds copies of the first. *Shape:* ``[B, T, C]`` to ``[B, K, C]``."""
    column = kept.column if kept.filler is None else kept.column.masked_fill(kept.filler, 0)
    return x.gather(1, column.unsqueeze(-1).expand(-1, -1, x.size(-1)))


def put_back(x: torch.Tensor, kept: Kept) -> torch.Tensor:
    """Kept columns at their places, zeros at all others. *Shape:* ``[B, K, C]`` to ``[B, T, C]``."""
    # filler lands in a column of its own that is cut off: no boolean index, which would wait for the device
    scratch = 0 if kept.filler is None else 1
    full = x.new_zeros(x.size(0), kept.width + scratch, x.size(2))
    full = full.scatter(1, kept.column.unsqueeze(-1).expand(-1, -1, x.size(-1)), x)
    return full[:, : kept.width]


def embed_kept(encoder: Any, tokens: torch.Tensor, kept: Kept) -> torch.Tensor:
    """Embed the kept tokens alone, each with the position it has in the full row. *Shape:* ``[B, T]`` to ``[B, K, C]``.

    The position vectors come from one row without padding, whatever kind of position embedding the encoder has: its own
    forward pass counts tokens, and would number the kept ones anew. What filler holds reaches nothing: no token attends
    to it, and it is not put back.
    """
    padded = F.pad(tokens, (0, 1), value=encoder.padding_idx)  # where filler points
    x = encoder.embed_scale * encoder.embed_tokens(padded.gather(1, kept.column))
    if encoder.embed_positions is not None:
        row = tokens.new_full((1, kept.longest), encoder.padding_idx + 1)
        x = x + F.embedding(kept.position, encoder.embed_positions(row)[0])
    if encoder.layernorm_embedding is not None:
        x = encoder.layernorm_embedding(x)
    x = encoder.dropout_module(x)
    if encoder.quant_noise is not None:
        x = encoder.quant_noise(x)
    return x


def encode_kept(
    encoder: Any, tokens: torch.Tensor, kept: Kept, from_layer: int = 0, return_all_hiddens: bool = False
) -> Tuple[torch.Tensor, Optional[List[torch.Tensor]]]:
    """Run an encoder whose layers, from ``from_layer`` on, see the kept tokens only.

    Args:
        encoder: fairseq's ``TransformerEncoder``, or anything with its attributes.
        tokens: ids of the full sequences ``[B, T]``.
        return_all_hiddens: also return the input of the first layer and the output of each, ``[T, B, C]``.

    Returns:
        packed features ``[B, K, C]`` (see :func:`put_back`), and the hidden states, zero at dropped positions, or None.
    """
    padding = tokens.eq(encoder.padding_idx)
    packed = from_layer == 0
    if packed:
        x, mask = embed_kept(encoder, tokens, kept), kept.filler
    else:
        x = encoder.forward_embedding(tokens)[0].masked_fill(padding.unsqueeze(-1), 0)
        mask = padding if padding.any() else None
    x = x.transpose(0, 1)  # [B, T, C] to [T, B, C], as the layers want it
    states: List[torch.Tensor] = []

    def record() -> None:
        if return_all_hiddens:
            states.append(put_back(x.transpose(0, 1), kept).transpose(0, 1) if packed else x)

    record()
    number = {id(layer): i for i, layer in enumerate(encoder.layers.children())}
    for layer in encoder.layers:  # under LayerDrop this leaves some out
        if not packed and number[id(layer)] >= from_layer:
            x, mask, packed = take(x.transpose(0, 1), kept).transpose(0, 1), kept.filler, True
        out = layer(x, encoder_padding_mask=mask)
        x = out[0] if isinstance(out, tuple) else out
        record()
    if not packed:
        x = take(x.transpose(0, 1), kept).transpose(0, 1)
    if encoder.layer_norm is not None:
        x = encoder.layer_norm(x)
    return x.transpose(0, 1), states if return_all_hiddens else None
