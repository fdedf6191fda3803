"""Maskers: how a row is cut into units that stand or fall together. See the README beside this file."""

from .base import MASKERS, Masker, MaskerConfig, build_masker, make_masker, register_masker
from .pmi import PMIConfig, PMIMasker
from .span import SpanConfig, SpanMasker, span_length_distribution
from .uniform import UniformMasker
from .whole_word import WholeWordMasker

__all__ = [
    "MASKERS",
    "Masker",
    "MaskerConfig",
    "PMIConfig",
    "PMIMasker",
    "SpanConfig",
    "SpanMasker",
    "UniformMasker",
    "WholeWordMasker",
    "build_masker",
    "make_masker",
    "register_masker",
    "span_length_distribution",
]
