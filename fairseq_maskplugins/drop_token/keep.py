"""Which tokens of a batch are dropped, and how the others are packed (numpy, and torch for the last step; no fairseq).

Source: DropToken, "MLM and MAE Through the Lens of Dropout" (Su Jianlin, 2021): in training, remove random tokens and
leave the positions of the others as they are.
"""

from typing import NamedTuple, Optional, Tuple

import numpy as np
import torch

from ..rng import GOLDEN, bits, make_keys, mix, to_uniform


class Kept(NamedTuple):
    """The kept tokens of ``B`` rows of ``T`` columns, packed into ``K`` columns: as many as the fullest row keeps.

    Attributes:
        column: int64 ``[B, K]``, where each kept token stands in its row, ascending; ``T`` in filler.
        position: int64 ``[B, K]``, how many non-padding tokens stand before it in the full row; 0 in filler.
        filler: bool ``[B, K]``, True past the end of a row that keeps less; None where no row does.
        width: ``T``.
        longest: the most non-padding tokens of a row.
    """

    column: torch.Tensor
    position: torch.Tensor
    filler: Optional[torch.Tensor]
    width: int
    longest: int


def count_before(valid: np.ndarray) -> np.ndarray:
    """Positions: how many valid tokens stand before each valid token, 0 at the others. *Shape:* ``[B, T]`` to int64."""
    return np.where(valid, np.cumsum(valid, axis=1) - 1, 0)


def hash_rows(tokens: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """A 64-bit word for each row's valid tokens and their order; padding on either side doesn't count.

    *Shape:* ``[B, T]`` integers and bool to uint64 ``[B]``.
    """
    order = mix(count_before(valid).astype(np.uint64) + GOLDEN)
    words = mix(order ^ mix(tokens.astype(np.uint64) + GOLDEN))
    return np.where(valid, words, np.uint64(0)).sum(axis=1, dtype=np.uint64)


def draw_dropped(
    tokens: np.ndarray, valid: np.ndarray, protected: np.ndarray, probability: float, seed: int, update: int, rank: int = 0
) -> np.ndarray:
    """Draw the tokens to drop, bool ``[B, T]``: ``floor(probability * n + u)`` of ``n`` droppable ones, ``u`` uniform in [0, 1).

    The expected number is exact and every droppable token has the same chance. The draw is a function of ``(seed, update, rank,
    the sequence's tokens)``, so the micro-batches of ``--update-freq`` draw what one large batch would; identical sequences draw
    the same within an update.

    Args:
        tokens: ids ``[B, T]``.
        valid: bool ``[B, T]``, False at padding.
        protected: bool ``[B, T]``, tokens that must stay; the first valid token of a sequence always does.
        probability: in [0, 1]; 0 drops nothing, 1 leaves the protected tokens.
    """
    position = count_before(valid)
    droppable = valid & ~protected & (position > 0)
    words = (seed, update, rank, hash_rows(tokens, valid))
    a, b = make_keys(words, "drop_token.order")
    order = np.where(droppable, to_uniform(bits((a[:, None], b[:, None]), position)), 2.0)
    u = to_uniform(bits(make_keys(words, "drop_token.count"), np.zeros(len(tokens), dtype=np.int64)))
    count = np.floor(probability * droppable.sum(axis=1) + u).astype(np.int64)
    count = np.minimum(count, droppable.sum(axis=1))  # rounding of the sum can reach one more at probability 1
    dropped = np.zeros(tokens.shape, dtype=bool)
    ranked = np.argsort(order, axis=1, kind="stable")
    np.put_along_axis(dropped, ranked, np.arange(tokens.shape[1]) < count[:, None], axis=1)
    return dropped


def pack(keep: np.ndarray, valid: np.ndarray, device: torch.device) -> Kept:
    """Pack the tokens to keep to the left of as few columns as hold them, with one transfer to the device.

    Args:
        keep: bool ``[B, T]``, True at tokens to keep: valid ones, at least one in a row that has any.
        valid: bool ``[B, T]``, False at padding.
    """
    width = keep.shape[1]
    counts = keep.sum(axis=1)
    size = max(1, int(counts.max(initial=0)))
    filler = np.arange(size) >= counts[:, None]
    column = np.argsort(~keep, axis=1, kind="stable")[:, :size]
    position = np.take_along_axis(count_before(valid), column, axis=1)
    column, position = np.where(filler, width, column), np.where(filler, 0, position)
    sent = torch.from_numpy(np.stack([column, position]).astype(np.int64)).to(device)
    longest = max(1, int(valid.sum(axis=1).max(initial=0)))
    return Kept(sent[0], sent[1], sent[0].eq(width) if filler.any() else None, width, longest)


def read_rows(tokens: torch.Tensor, marked: Optional[torch.Tensor] = None) -> Tuple[np.ndarray, np.ndarray]:
    """Token ids and a bool mark per token on the host, with one transfer. *Shape:* ``[B, T]`` each."""
    if marked is None:
        host = tokens.cpu().numpy()
        return host, np.zeros(host.shape, dtype=bool)
    # a marked id travels as its complement, which is negative
    host = torch.where(marked, ~tokens, tokens).cpu().numpy()
    return np.where(host < 0, ~host, host), host < 0
