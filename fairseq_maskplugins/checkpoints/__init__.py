"""Reading checkpoints: what they may hold, and one line where they can't be read or resumed from."""

from .reading import allow_in_checkpoints  # noqa: F401
