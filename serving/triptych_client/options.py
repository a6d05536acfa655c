"""Options of calls: how translations are decoded, texts pooled and entities aggregated."""

from enum import StrEnum

from triptych.decoding import DecodingOptions, SplitSentences

__all__ = ["Aggregation", "DecodingOptions", "Pooling", "SplitSentences"]


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
