"""Building PMI vocabularies: see the README beside this file."""

from .build import Built, build_list, write_list
from .words import WordSplitter

__all__ = ["Built", "WordSplitter", "build_list", "write_list"]
