"""``--arch droptoken_roberta``: fairseq's RoBERTa, trained on rows from which a share of the tokens is dropped."""

from argparse import ArgumentParser, Namespace
from typing import Any, Optional

from fairseq.models import register_model, register_model_architecture
from fairseq.models.roberta import model as roberta
from fairseq.utils import safe_getattr
from torch import Tensor

from ..compat import data_parallel_rank, disable_inference_path
from ..errors import UsageError
from .encode import encode_kept, put_back
from .keep import Kept, draw_dropped, pack, read_rows

NAME = "droptoken_roberta"


def add_checkpointing_options(parser: ArgumentParser) -> None:
    """Options that fairseq's encoder obeys and its RoBERTa does not offer."""
    parser.add_argument(
        "--checkpoint-activations",
        action="store_true",
        help="recompute activations in the backward pass: less memory, a third more time",
    )
    parser.add_argument(
        "--offload-activations",
        action="store_true",
        help="with --checkpoint-activations: keep what is saved in the host's memory",
    )


class PackedRobertaModel(roberta.RobertaModel):
    """RoBERTa whose layers may work on packed rows. Which rows, and what follows, is for a subclass to say."""

    drop_token_from_layer = 0

    def choose_kept(self, tokens: Tensor, features_only: bool, predicted: Optional[Tensor]) -> Optional[Kept]:
        """What the layers see of a batch ``[B, T]``; None where that is all of it, and the model is RoBERTa."""
        raise NotImplementedError

    def give_logits(self, encoded: Tensor, kept: Kept, tokens: Tensor, predicted: Optional[Tensor]) -> Tensor:
        """Logits of the predicted positions, or of all, from what comes out of the layers, ``[B, K, C]``."""
        raise NotImplementedError

    def forward(
        self,
        src_tokens: Tensor,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        classification_head_name: Optional[str] = None,
        masked_tokens: Optional[Tensor] = None,
        **kwargs: Any,
    ) -> Any:
        """As RoBERTa's. Features, hidden states and logits keep their shapes, with zeros for what the layers don't see."""
        features_only = features_only or classification_head_name is not None
        kept = self.choose_kept(src_tokens, features_only, masked_tokens)
        if kept is None:
            return super().forward(
                src_tokens,
                features_only=features_only,
                return_all_hiddens=return_all_hiddens,
                classification_head_name=classification_head_name,
                masked_tokens=masked_tokens,
                **kwargs,
            )
        encoder = self.encoder.sentence_encoder
        disable_inference_path(encoder)
        x, states = encode_kept(encoder, src_tokens, kept, self.drop_token_from_layer, return_all_hiddens)
        x = put_back(x, kept) if features_only else self.give_logits(x, kept, src_tokens, masked_tokens)
        if classification_head_name is not None:
            x = self.classification_heads[classification_head_name](x)
        return x, {"inner_states": states}


@register_model(NAME)
class DropTokenRobertaModel(PackedRobertaModel):
    """RoBERTa with DropToken: parameters, checkpoints and evaluation are those of RoBERTa.

    In training, each row loses a share of its tokens before layer ``--drop-token-from-layer``. The first token, every
    ``<s>``, and in masked-LM training every predicted token stay. Where logits of all positions are asked for and
    nothing says which are predicted, all of them may be, and nothing is dropped.
    """

    def __init__(self, args: Namespace, encoder: Any):
        super().__init__(args, encoder)
        self.num_updates = 0
        self.drop_token_prob = float(safe_getattr(args, "drop_token_prob", 0.0))
        self.drop_token_warmup_updates = int(safe_getattr(args, "drop_token_warmup_updates", 0))
        self.drop_token_from_layer = int(safe_getattr(args, "drop_token_from_layer", 0))
        self.seed = int(safe_getattr(args, "seed", None) or 0)
        if not 0.0 <= self.drop_token_prob <= 1.0:
            raise UsageError(f"--drop-token-prob must lie in [0, 1], got {self.drop_token_prob:g}")
        if self.drop_token_warmup_updates < 0:
            raise UsageError(f"--drop-token-warmup-updates must be 0 or more, got {self.drop_token_warmup_updates}")
        layers = encoder.sentence_encoder.num_layers
        if not 0 <= self.drop_token_from_layer < layers:
            raise UsageError(
                f"--drop-token-from-layer must lie in [0, {layers - 1}] with {layers} layers, got {self.drop_token_from_layer}"
            )

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        roberta.RobertaModel.add_args(parser)
        add_checkpointing_options(parser)
        parser.add_argument(
            "--drop-token-prob",
            type=float,
            default=0.0,
            metavar="P",
            help="share of the tokens that is dropped in training, in [0, 1]: 0 is RoBERTa, 1 leaves <s> and what is predicted",
        )
        parser.add_argument(
            "--drop-token-warmup-updates",
            type=int,
            default=0,
            metavar="N",
            help="raise the share linearly from 0 over the first N updates; 0 starts with the full share",
        )
        parser.add_argument(
            "--drop-token-from-layer",
            type=int,
            default=0,
            metavar="N",
            help="the first N layers see all tokens, 0 <= N < --encoder-layers",
        )

    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> "DropTokenRobertaModel":
        model = super().build_model(args, task)
        if safe_getattr(args, "seed", None) is None:  # fairseq-hydra-train gives models their own options only
            model.seed = int(safe_getattr(getattr(task, "cfg", None), "seed", 1))
        return model

    def set_num_updates(self, num_updates: int) -> None:
        super().set_num_updates(num_updates)
        self.num_updates = num_updates

    @property
    def drop_probability(self) -> float:
        """The share at the current update."""
        if self.drop_token_warmup_updates == 0:
            return self.drop_token_prob
        return self.drop_token_prob * min(1.0, self.num_updates / self.drop_token_warmup_updates)

    def draw_kept(self, tokens: Tensor, predicted: Optional[Tensor] = None) -> Optional[Kept]:
        """What the layers see of a batch; None where nothing is dropped.

        Args:
            tokens: ids. *Shape:* ``[B, T]``.
            predicted: bool ``[B, T]`` (or broadcastable), tokens that must stay.
        """
        if not self.training or self.drop_probability == 0.0:
            return None
        dictionary = self.encoder.dictionary
        host, protected = read_rows(tokens, predicted)
        valid = host != dictionary.pad()
        protected = protected | (host == dictionary.bos())
        rank = data_parallel_rank()
        dropped = draw_dropped(host, valid, protected, self.drop_probability, self.seed, self.num_updates, rank)
        return pack(valid & ~dropped, valid, tokens.device) if dropped.any() else None

    def choose_kept(self, tokens: Tensor, features_only: bool, predicted: Optional[Tensor]) -> Optional[Kept]:
        return self.draw_kept(tokens, predicted) if features_only or predicted is not None else None

    def give_logits(self, encoded: Tensor, kept: Kept, tokens: Tensor, predicted: Optional[Tensor]) -> Tensor:
        return self.encoder.output_layer(put_back(encoded, kept), masked_tokens=predicted)


def register_architectures(model: str) -> None:
    """Give a model the architectures of RoBERTa, under its own name."""
    for suffix, architecture in (
        ("", roberta.base_architecture),
        ("_prenorm", roberta.roberta_prenorm_architecture),
        ("_base", roberta.roberta_base_architecture),
        ("_large", roberta.roberta_large_architecture),
        ("_xlm", roberta.xlm_architecture),
    ):
        register_model_architecture(model, model + suffix)(architecture)


register_architectures(NAME)
