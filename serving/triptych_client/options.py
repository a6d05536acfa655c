"""Options of calls: how translations are decoded, texts pooled and entities aggregated."""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

from triptych.decoding import DecodingArguments, DecodingOptions, SplitSentences

__all__ = ["Aggregation", "DecodingOptions", "Pooling", "SplitSentences", "collect_options"]


def collect_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Move decoding options that have arguments of their own into `options`, where they take precedence.

    Raises:
        TypeError: `options` is no DecodingOptions.
    """
    if not isinstance(given := arguments.get("options"), DecodingOptions | None):
        raise TypeError(f"options is a DecodingOptions, not {type(given).__name__}; or write the options as arguments")
    named = {name: value for name, value in arguments.items() if name in DecodingArguments.__optional_keys__}
    others = {name: value for name, value in arguments.items() if name not in named}
    return {**others, "options": replace(given or DecodingOptions(), **named)} if named else others


class Pooling(StrEnum):
    """The method that combines the vectors of a text's tokens."""

    MEAN = "mean"
    """The mean over all tokens of the text, [CLS] and [SEP] included."""
    CLS = "cls"
    """The last hidden state of [CLS]."""


class Aggregation(StrEnum):
    """The method that combines labelled tokens to entities."""

    NONE = "none"
    """One entity per token, whatever its label."""
    SIMPLE = "simple"
    """Adjacent tokens with the same label form one entity; B- starts an entity, I- continues it, O is left out."""
