"""What is visible, and the decoder (numpy and torch, no fairseq: the decoder's layers are passed in).

Source: "MLM and MAE Through the Lens of Dropout" (Su Jianlin, 2021), which carries the masked autoencoder of He et al.
(arXiv 2111.06377) over to text.
"""

import numpy as np
import torch
from torch import nn

from ..drop_token.encode import put_back
from ..drop_token.keep import Kept, pack, read_rows


def choose_visible(tokens: np.ndarray, valid: np.ndarray, mask: int) -> np.ndarray:
    """All tokens but ``<mask>`` and padding. A row that would show nothing shows its first token: attention over
    nothing is not defined.

    *Shape:* integers ``[B, T]`` and bool ``[B, T]`` to bool ``[B, T]``.
    """
    visible = valid & (tokens != mask)
    empty = ~visible.any(axis=1) & valid.any(axis=1)
    visible[empty, valid[empty].argmax(axis=1)] = True
    return visible


def pack_visible(tokens: torch.Tensor, pad: int, mask: int) -> Kept:
    """The visible tokens of a batch, packed into as many columns as the fullest row shows."""
    host, _ = read_rows(tokens)
    valid = host != pad
    return pack(choose_visible(host, valid, mask), valid, tokens.device)


def find_seen(kept: Kept) -> torch.Tensor:
    """True at visible tokens. *Shape:* bool ``[B, T]``."""
    seen = torch.zeros(len(kept.column), kept.width + 1, dtype=torch.bool, device=kept.column.device)
    return seen.scatter(1, kept.column, True)[:, : kept.width]


class MaskedDecoder(nn.Module):
    """A shallow Transformer over full sequences: encoded tokens where there are any, one mask embedding elsewhere.

    Args:
        stack: fairseq's ``TransformerEncoder`` of width ``D`` with its own positions; it is called with the tokens (for
            positions and padding) and with embeddings in place of the tokens'.
        outer, inner: widths ``C`` of the encoder and ``D`` of the decoder.
    """

    def __init__(self, stack: nn.Module, outer: int, inner: int):
        super().__init__()
        self.shrink = nn.Linear(outer, inner)
        self.mask = nn.Parameter(torch.empty(inner).normal_(0.0, 0.02))  # as token embeddings begin
        self.stack = stack
        self.grow = nn.Linear(inner, outer)

    def forward(self, encoded: torch.Tensor, kept: Kept, tokens: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Features ``[N, C]`` of the ``chosen`` positions (bool ``[B, T]``), or ``[B, T, C]`` of all if None.

        Args:
            encoded: of the visible tokens ``[B, K, C]``, at the places ``kept``.
            tokens: ids of the full sequences ``[B, T]``.
        """
        x = put_back(self.shrink(encoded), kept)
        x = torch.where(find_seen(kept).unsqueeze(-1), x, self.mask.to(x.dtype))
        x = self.stack(tokens, token_embeddings=x)["encoder_out"][0].transpose(0, 1)
        return self.grow(x if chosen is None else x[chosen])
