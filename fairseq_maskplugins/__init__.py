"""Masking methods for fairseq, loaded with ``--user-dir fairseq_maskplugins``."""

import importlib.util
import os
import sys

_NAME = "fairseq_maskplugins"


class _RealPath(list):
    """``__path__`` that knows its folder by any name: fairseq asks whether ``--user-dir`` is in it, and a symlink is."""

    def __contains__(self, path: object) -> bool:
        return any(os.path.realpath(str(path)) == os.path.realpath(own) for own in self)


def _load_canonical() -> None:
    """Stand in for ourselves under our own name.

    A symlink or a copy under another name would otherwise be a second package, and everything in it would register a
    second time.
    """
    real = os.path.dirname(os.path.realpath(__file__))
    package = sys.modules.get(_NAME)
    if package is None or os.path.realpath(os.path.dirname(package.__file__)) != real:
        if package is not None:
            from .errors import UsageError

            raise UsageError(f"--user-dir {real}: {_NAME} is already imported from {os.path.dirname(package.__file__)}")
        spec = importlib.util.spec_from_file_location(
            _NAME, os.path.join(real, "__init__.py"), submodule_search_locations=[real]
        )
        package = importlib.util.module_from_spec(spec)
        sys.modules[_NAME] = package
        try:
            spec.loader.exec_module(package)
        except BaseException:
            del sys.modules[_NAME]
            raise
    sys.modules[__name__] = package


if __name__ == _NAME:
    __path__ = _RealPath(__path__)

    from .cli.start import begin, is_command

    if is_command():
        begin()
    # "maskplugins doctor" tells what is broken where the rest can't even be imported
    if not (sys.argv[1:2] == ["doctor"] and is_command()):
        from .compat import (
            note_flat_shapes,
            quieten_half_read_data,
            require_supported_versions,
            spare_inference_copies,
        )

        require_supported_versions()
        quieten_half_read_data()
        note_flat_shapes()
        spare_inference_copies()

        # explicit registration: importing these adds tasks, criterions, models and optimizers to fairseq's registries
        from .checkpoints import register as checkpoints_register  # noqa: F401
        from .child_tuning import optimizer as child_tuning_optimizer  # noqa: F401
        from .correct_embeddings import register as correct_embeddings_register  # noqa: F401
        from .decoupled_mlm import criterion, task  # noqa: F401
        from .drop_token import model as drop_token_model  # noqa: F401
        from .mae import model as mae_model  # noqa: F401
        from .mapnet import criterion as mapnet_criterion  # noqa: F401
        from .maskers import Masker, MaskerConfig, register_masker  # noqa: F401
        from .ranks import register as ranks_register  # noqa: F401
        from .saving import register as saving_register  # noqa: F401

    __version__ = "0.1.0"
else:
    _load_canonical()
