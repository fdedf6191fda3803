"""``--arch mae_roberta``: a RoBERTa that is pretrained on visible tokens only, with a shallow decoder beside it."""

import logging
from argparse import ArgumentParser, Namespace
from typing import Any, Dict, Optional

from fairseq.models import register_model
from fairseq.models.roberta import model as roberta
from fairseq.models.transformer import TransformerEncoder
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from fairseq.utils import safe_getattr
from torch import Tensor, nn

from ..compat import disable_inference_path
from ..drop_token.keep import Kept
from ..drop_token.model import PackedRobertaModel, add_checkpointing_options, register_architectures
from ..errors import CheckpointError, UsageError
from .decode import MaskedDecoder, pack_visible

logger = logging.getLogger(__name__)
NAME = "mae_roberta"
# fairseq's RoBERTa leaves out whatever a checkpoint has under this name (data2vec's head), so that it loads the encoder
# of a MAE checkpoint without our help
DECODER = "encoder.regression_head."
OLD_DECODER = "mae_decoder."  # its name in checkpoints of version 0.1


class _NoTokens(nn.Module):
    """Stands where a Transformer has its token embeddings; the decoder gets vectors."""

    def __init__(self, embedding_dim: int, padding_idx: int):
        super().__init__()
        self.embedding_dim, self.padding_idx = embedding_dim, padding_idx


@register_model(NAME)
class MAERobertaModel(PackedRobertaModel):
    """RoBERTa as a masked autoencoder.

    In masked-LM training and validation the encoder sees the tokens that are not ``<mask>``, and the decoder predicts through
    RoBERTa's output layer. For features and classification heads it is RoBERTa, without a decoder under tasks that mask nothing.
    """

    def __init__(self, args: Namespace, encoder: Any):
        super().__init__(args, encoder)
        self.encoder.regression_head = None
        self.mask_idx = -1

    @property
    def mae_decoder(self) -> Optional[MaskedDecoder]:
        return self.encoder.regression_head

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        roberta.RobertaModel.add_args(parser)
        add_checkpointing_options(parser)
        parser.add_argument("--decoder-layers", type=int, default=2, metavar="N", help="layers of the decoder, 1 or more")
        parser.add_argument(
            "--decoder-embed-dim", type=int, metavar="N", help="width of the decoder (default: half of --encoder-embed-dim)"
        )
        parser.add_argument(
            "--decoder-ffn-embed-dim",
            type=int,
            metavar="N",
            help="inner width of the decoder (default: 4 times --decoder-embed-dim)",
        )
        parser.add_argument(
            "--decoder-attention-heads",
            type=int,
            metavar="N",
            help="heads of the decoder, a divisor of its width (default: one for each 64, or the next divisor below)",
        )

    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> "MAERobertaModel":
        model = super().build_model(args, task)
        mask_idx = getattr(task, "mask_idx", None)
        if mask_idx is not None:
            model.mask_idx = int(mask_idx)
            model.encoder.regression_head = build_decoder(args, task.source_dictionary)
            disable_inference_path(model.encoder.sentence_encoder)
            disable_inference_path(model.mae_decoder.stack)
        return model

    def choose_kept(self, tokens: Tensor, features_only: bool, predicted: Optional[Tensor]) -> Optional[Kept]:
        if self.mae_decoder is None or features_only:
            return None
        return pack_visible(tokens, self.encoder.dictionary.pad(), self.mask_idx)

    def give_logits(self, encoded: Tensor, kept: Kept, tokens: Tensor, predicted: Optional[Tensor]) -> Tensor:
        return self.encoder.output_layer(self.mae_decoder(encoded, kept, tokens, predicted))

    def upgrade_state_dict_named(self, state_dict: Dict[str, Tensor], name: str) -> None:
        begin = name + "." if name else ""
        prefix, old = begin + DECODER, begin + OLD_DECODER
        for key in [key for key in state_dict if key.startswith(old)]:
            state_dict[prefix + key[len(old) :]] = state_dict.pop(key)
        if self.mae_decoder is None:
            return super().upgrade_state_dict_named(state_dict, name)
        weights = {key[len(prefix) :]: value for key, value in state_dict.items() if key.startswith(prefix)}
        if weights:
            _check_sizes(self.mae_decoder.state_dict(), weights)
        else:
            logger.info("the checkpoint has no MAE decoder: this model's starts from its initial weights")
            weights = self.mae_decoder.state_dict()
        # with the weights in place, or fairseq would take the missing version for an old one, and drop a layer norm
        state_dict.update({prefix + key: value for key, value in weights.items()})
        super().upgrade_state_dict_named(state_dict, name)  # leaves the decoder out
        state_dict.update({prefix + key: value for key, value in weights.items()})
        self.mae_decoder.stack.upgrade_state_dict_named(state_dict, prefix + "stack")


def _check_sizes(ours: Dict[str, Tensor], theirs: Dict[str, Tensor]) -> None:
    """Refuse a checkpoint's decoder of other sizes. Fairseq's generations may differ in what else is in it."""
    layers = [{key.split(".layers.")[1].split(".")[0] for key in one if ".layers." in key} for one in (ours, theirs)]
    if layers[0] != layers[1] or any(ours[key].shape != theirs[key].shape for key in ours.keys() & theirs.keys()):
        raise CheckpointError(
            "its MAE decoder has other sizes than this one: give the --decoder-layers, "
            "--decoder-embed-dim, --decoder-ffn-embed-dim and --decoder-attention-heads that it was trained with"
        )


def build_decoder(args: Namespace, dictionary: Any) -> MaskedDecoder:
    """The decoder that the options ask for.

    Raises:
        UsageError: a size below 1, a width that the heads don't divide, or one that quantised blocks don't fill.
    """
    outer = args.encoder_embed_dim
    inner = _size(args, "decoder_embed_dim", outer // 2)
    sizes = dict(
        encoder_layers=_size(args, "decoder_layers", 2),
        encoder_embed_dim=inner,
        encoder_ffn_embed_dim=_size(args, "decoder_ffn_embed_dim", 4 * inner),
        encoder_attention_heads=_size(args, "decoder_attention_heads", _choose_heads(inner)),
    )
    heads = sizes["encoder_attention_heads"]
    if inner % heads:
        raise UsageError(f"--decoder-attention-heads must divide --decoder-embed-dim, {inner}, got {heads}")
    block = safe_getattr(args, "quant_noise_pq_block_size", 8)
    for name, size in (("embed", inner), ("ffn-embed", sizes["encoder_ffn_embed_dim"])):
        if safe_getattr(args, "quant_noise_pq", 0) > 0 and size % block:
            raise UsageError(f"--decoder-{name}-dim must be a multiple of --quant-noise-pq-block-size, {block}, got {size}")
    given = dict(args.items()) if hasattr(args, "items") else vars(args)
    options = Namespace(**{**given, **sizes, "encoder_layerdrop": 0.0, "encoder_layers_to_keep": None})
    stack = TransformerEncoder(options, dictionary, _NoTokens(inner, dictionary.pad()))
    decoder = MaskedDecoder(stack, outer, inner)
    decoder.apply(init_bert_params)
    return decoder


def _choose_heads(width: int) -> int:
    """One head for each 64 of the width, or the next smaller number that divides it."""
    return next(heads for heads in range(max(1, width // 64), 0, -1) if width % heads == 0)


def _size(args: Namespace, name: str, default: int) -> int:
    value = safe_getattr(args, name, None)
    value = default if value is None else int(value)
    if value < 1:
        raise UsageError(f"--{name.replace('_', '-')} must be 1 or more, got {value}")
    return value


register_architectures(NAME)
