"""The proposer: a small Transformer that scores the tokens of a row, with a learning rate of its own (no fairseq).

Optimizers see every parameter of a run as one list, and under ``--fp16`` as one flat vector: there is no place for a
second learning rate. So it is built into the parameters: a layer here stores ``weight / s`` and computes with
``s * stored``. What is stored gets the gradient of the weight, without the chain rule's ``s``: so an optimizer moves what is
stored as far as it would have moved the weight, and the weight ``s`` times as far, and gradients, which are clipped
together with the model's, are as large as without a scale.
"""

import math
from typing import Any, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import nn


class _Scale(torch.autograd.Function):
    """``scale * stored``, whose gradient reaches ``stored`` as it is."""

    @staticmethod
    def forward(ctx: Any, stored: torch.Tensor, scale: float) -> torch.Tensor:
        return stored * scale

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Tuple[torch.Tensor, None]:
        return grad, None


class ScaledLinear(nn.Linear):
    """A linear layer that computes with ``scale`` times its stored parameters."""

    def __init__(self, inner: int, outer: int, scale: float):
        super().__init__(inner, outer)
        self.scale = scale
        nn.init.normal_(self.weight, 0.0, 0.02 / scale)  # as BERT's
        nn.init.zeros_(self.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, _Scale.apply(self.weight, self.scale), _Scale.apply(self.bias, self.scale))


class ScaledLayerNorm(nn.LayerNorm):
    """A layer norm that computes with ``scale`` times its stored parameters."""

    def __init__(self, width: int, scale: float):
        super().__init__(width)
        self.scale = scale
        nn.init.constant_(self.weight, 1.0 / scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = _Scale.apply(self.weight, self.scale), _Scale.apply(self.bias, self.scale)
        return F.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


class ScaledEmbedding(nn.Embedding):
    """Token embeddings that come out as ``scale`` times the stored ones."""

    def __init__(self, size: int, width: int, pad: int, scale: float):
        super().__init__(size, width, padding_idx=pad)
        self.scale = scale
        nn.init.normal_(self.weight, 0.0, 0.02 / scale)
        nn.init.zeros_(self.weight[pad])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return _Scale.apply(super().forward(tokens), self.scale)


class Layer(nn.Module):
    """A Transformer layer, layer norms first, without dropout."""

    def __init__(self, width: int, heads: int, scale: float):
        super().__init__()
        self.heads = heads
        self.attention_norm = ScaledLayerNorm(width, scale)
        self.qkv = ScaledLinear(width, 3 * width, scale)
        self.out = ScaledLinear(width, width, scale)
        self.ffn_norm = ScaledLayerNorm(width, scale)
        self.grow = ScaledLinear(width, 4 * width, scale)
        self.shrink = ScaledLinear(4 * width, width, scale)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        """*Shape:* ``[B, T, D]`` and bool ``[B, T]`` (True at padding) to ``[B, T, D]``."""
        rows, length, width = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        score = torch.matmul(q * (width / self.heads) ** -0.5, k.transpose(-2, -1)).float()
        # a finite value: a row that is all padding then attends to all of it, and nothing is NaN
        score = score.masked_fill(padding[:, None, None, :], -1e30)
        mixed = torch.matmul(score.softmax(-1).type_as(x), v)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.shrink(F.gelu(self.grow(self.ffn_norm(x))))


class Proposer(nn.Module):
    """Score the tokens of uncorrupted sequences: higher means proposed more often.

    The last layer starts at zero: the first proposal is exactly uniform. There is no dropout, so that the proposal is a function
    of the sequence, and positions are sinusoids, so that sequences may have any length.

    Args:
        vocabulary, pad: number ``V`` of dictionary entries, and the id of padding.
        layers: Transformer layers, 0 or more; with 0 a score depends on the token and its position only.
        width, heads: ``D``, a multiple of ``heads``.
        scale: ``s`` of ``--mapnet-lr-scale``, above 0; 1 changes nothing.
        shared_width: width of the model's token embeddings if those are used, else None.
    """

    def __init__(
        self,
        vocabulary: int,
        pad: int,
        layers: int,
        width: int,
        heads: int,
        scale: float = 1.0,
        shared_width: Optional[int] = None,
    ):
        super().__init__()
        self.pad, self.width, self.scale = pad, width, scale
        if shared_width is None:
            self.embed = ScaledEmbedding(vocabulary, width, pad, scale)
        else:
            self.adapt = ScaledLinear(shared_width, width, scale)
        self.shared = shared_width is not None
        self.layers = nn.ModuleList(Layer(width, heads, scale) for _ in range(layers))
        self.norm = ScaledLayerNorm(width, scale)
        self.score = ScaledLinear(width, 1, scale)
        nn.init.zeros_(self.score.weight)

    def rescale(self, stored: float) -> None:
        """After loading parameters that were stored with scale ``stored``: keep what they compute. What an optimizer knows
        of their gradients stays true."""
        if stored != self.scale:
            with torch.no_grad():
                for parameter in self.parameters():
                    parameter.mul_(stored / self.scale)

    def forward(self, tokens: torch.Tensor, embedding: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Score tokens.

        Args:
            tokens: ids ``[B, T]``, right-padded.
            embedding: the model's token embeddings ``[V, C]``, for a proposer that shares them. They are detached: no
                gradient of the proposer's reaches them.

        Returns:
            float32 ``[B, T]``; what stands at padding means nothing.
        """
        x = self.adapt(F.embedding(tokens, embedding.detach())) if self.shared else self.embed(tokens)
        x = x + sinusoids(tokens.size(1), self.width, tokens.device).type_as(x)
        padding = tokens.eq(self.pad)
        for layer in self.layers:
            x = layer(x, padding)
        return self.score(self.norm(x)).squeeze(-1).float()


def sinusoids(length: int, width: int, device: torch.device) -> torch.Tensor:
    """Sinusoidal positions of the size of token embeddings (0.02). *Shape:* float32 ``[length, width]``."""
    half = (width + 1) // 2
    rate = torch.exp(torch.arange(half, device=device) * (-math.log(10000.0) / half))
    angle = torch.arange(length, device=device)[:, None] * rate
    return 0.02 * torch.cat([angle.sin(), angle.cos()], dim=1)[:, :width]
