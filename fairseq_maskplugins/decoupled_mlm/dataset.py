"""The data set of ``--task decoupled_mlm``: read blocks, and draw their mask plans in the data worker."""

from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch
from fairseq.data import FairseqDataset
from fairseq.data.indexed_dataset import MMapIndexedDataset

from ..compat import complete_batches
from ..errors import UsageError
from ..rng import SequenceDraws
from .blocks import TokenStream, pad_rows
from .plan import Planner
from .sample import PLAN_KEY

Item = Tuple[int, np.ndarray]


def build_blocks(sizes: Sequence[int], break_mode: Any, block_size: int) -> np.ndarray:
    """Cut the token stream into blocks as ``--sample-break-mode`` asks. *Shape:* ``[N, 2]``, starts and ends.

    The same blocks as fairseq's ``TokenBlockDataset``, which fails in mode ``eos`` with numpy 2.
    """
    from fairseq.data.token_block_utils_fast import _get_slice_indices_fast

    sizes = np.asarray(sizes, dtype=np.int64)
    return np.asarray(_get_slice_indices_fast(sizes, str(break_mode), block_size, 1))  # documents end in an empty line, one </s>


def open_stream(dataset: Any, path: str) -> TokenStream:
    """Open a token stream over a fairseq data set; a memory-mapped one is read without copies."""
    sizes = np.asarray(dataset.sizes, dtype=np.int64)
    buffer = None
    if isinstance(dataset, MMapIndexedDataset):
        raw, dtype = dataset._bin_buffer, np.dtype(dataset._index.dtype)
        begins = np.asarray(dataset._index._pointers)
        ends = begins + sizes * dtype.itemsize
        needed = int(ends.max(initial=0))
        if needed > len(raw):
            raise UsageError(f"{path}.bin is truncated: its index asks for {needed} bytes, it has {len(raw)}")
        if np.array_equal(begins[1:], ends[:-1]):
            buffer = np.frombuffer(raw, dtype=dtype, count=int(sizes.sum()), offset=int(begins[0]) if len(begins) else 0)
    if buffer is None and getattr(dataset, "supports_prefetch", False):
        dataset.prefetch(range(len(dataset)))  # the old format is read into memory once, before the trainer's first batch
    return TokenStream(sizes, lambda i: np.asarray(dataset[i]), buffer)


class MaskPlanDataset(FairseqDataset):
    """Blocks of tokens with ``<s>`` before each, collated with the plan of their masks.

    A batch holds uncorrupted sequences and, under ``mask_plan``, their :class:`~fairseq_maskplugins.decoupled_mlm.plan.Plan`,
    which the task's step cuts, because only it knows the update number.

    Args:
        dataset: an indexed data set, shortened or not.
        blocks: start and end of each block in the token stream. *Shape:* ``[N, 2]``.
        planner: draws the plans.
        seed: seeds the draws and the order of equally long sequences.
        copies: the maximal copies of a sequence at any update; ``num_tokens`` counts them.
        path: named in errors.
    """

    def __init__(self, dataset: Any, blocks: np.ndarray, planner: Planner, seed: int, copies: int, path: str):
        super().__init__()
        self.dataset, self.planner, self.seed, self.copies, self.path = dataset, planner, seed, copies, path
        self.blocks = blocks
        self.sizes = (blocks[:, 1] - blocks[:, 0] + 1).astype(np.int64)
        self._stream: Optional[TokenStream] = open_stream(dataset, path)
        self._epoch = torch.ones(1, dtype=torch.int64).share_memory_()  # data workers live on from epoch to epoch
        self._source_epoch = 1

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_stream": None}  # a view of a memory map would be pickled as a copy of the whole file

    @property
    def stream(self) -> TokenStream:
        if self._stream is None:
            self._stream = open_stream(self.dataset, self.path)
        return self._stream

    @property
    def epoch(self) -> int:
        return int(self._epoch)

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        return True  # only the masks change from epoch to epoch

    def set_epoch(self, epoch: int, **unused: Any) -> None:
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> Item:
        """Return the index and the block's tokens, without ``<s>``."""
        epoch = self.epoch
        if epoch != self._source_epoch and hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)  # --shorten-method random_crop crops by epoch, also in a worker
        self._source_epoch = epoch
        start, end = self.blocks[index]
        return int(index), self.stream.read(start, end)

    def num_tokens(self, index: int) -> int:
        return int(self.sizes[index]) * self.copies

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        return self.sizes[indices] * self.copies

    def size(self, index: int) -> int:
        return int(self.sizes[index])

    def ordered_indices(self) -> np.ndarray:
        """Order sequences from short to long, equally long ones as fairseq's ``masked_lm`` does with this seed."""
        shuffle = np.random.RandomState(self.seed % 2**32).permutation(len(self))
        return np.lexsort([shuffle, self.sizes])

    def batch_by_size(self, indices: np.ndarray, max_tokens: Optional[int] = None, **options: Any) -> Any:
        if len(indices) == 0:
            raise UsageError(
                f"{self.path}: no sequence is as short as the model's --max-positions and --max-tokens allow; the shortest has "
                f"{int(self.sizes.min())} tokens"
            )
        longest = int(self.sizes[indices].max())
        if max_tokens is not None and longest * self.copies > max_tokens:
            raise UsageError(
                f"--max-tokens must hold the longest sequence of {self.path}, {longest} tokens in {self.copies} "
                f"{'copy' if self.copies == 1 else 'copies'}, got {max_tokens}"
            )
        return complete_batches(indices, super().batch_by_size(indices, max_tokens=max_tokens, **options))

    def collater(self, items: List[Item]) -> Dict[str, Any]:
        """Merge items into a batch of uncorrupted sequences ``[B, T]`` and their mask plan."""
        if not items:
            return {}
        vocabulary = self.planner.vocabulary
        ids = np.array([index for index, _ in items], dtype=np.int64)
        tokens = pad_rows([row for _, row in items], vocabulary.pad, vocabulary.bos)
        self.check_tokens(tokens, ids)
        plan = self.planner.draw(tokens, SequenceDraws(self.seed, self.epoch, ids))
        lengths = torch.tensor([len(row) + 1 for _, row in items], dtype=torch.int64)
        return {
            "id": torch.from_numpy(ids),
            "net_input": {"src_tokens": torch.from_numpy(tokens), "src_lengths": lengths},
            "nsentences": len(items),
            "ntokens": int(lengths.sum()),
            PLAN_KEY: {name: None if value is None else torch.from_numpy(value) for name, value in plan._asdict().items()},
        }

    def check_tokens(self, tokens: np.ndarray, ids: np.ndarray) -> None:
        """Refuse ids that the dictionary does not have, and ``<mask>`` in the data."""
        vocabulary = self.planner.vocabulary
        if tokens.max() >= len(vocabulary):
            row, column = np.argwhere(tokens >= len(vocabulary))[0]
            raise UsageError(
                f"{self.path}: sequence {ids[row]} holds token id {tokens[row, column]}, the dictionary has only "
                f"{len(vocabulary)} entries; preprocess the data with this dictionary"
            )
        if (tokens == vocabulary.mask).any():
            row = ids[np.argwhere(tokens == vocabulary.mask)[0, 0]]
            remedy = "remove the word <mask> from the text and preprocess it again"
            raise UsageError(f"{self.path}: sequence {row} holds <mask> itself; {remedy}")
