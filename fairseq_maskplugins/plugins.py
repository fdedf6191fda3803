"""Register everything with fairseq: importing the adapters adds them to fairseq's registries."""

from . import checkpoints, compat, fairseq_fixes

compat.require_supported_versions()
checkpoints.allow_fairseq_classes()
fairseq_fixes.apply()

from .child_tuning import optimizer  # noqa: E402, F401
from .decoupled_mlm import criterion, task  # noqa: E402, F401
from .drop_token import model as drop_token_model  # noqa: E402, F401
from .mae import model as mae_model  # noqa: E402, F401
from .mapnet import criterion as mapnet_criterion  # noqa: E402, F401
