"""Options of the BERT family's services."""

from enum import StrEnum
from typing import TypeVar

Choice = TypeVar("Choice", bound=StrEnum)


class Pooling(StrEnum):
    """How a text's token vectors become one vector."""

    MEAN = "mean"
    """The mean over all tokens of the text, [CLS] and [SEP] included."""
    CLS = "cls"
    """The last hidden state of [CLS]."""


class Aggregation(StrEnum):
    """How labelled tokens become entities."""

    NONE = "none"
    """One entity a token, whatever its label."""
    SIMPLE = "simple"
    """Adjacent tokens of one label are one entity; B- begins one, I- goes on with it, O is left out."""


def choose(kind: type[Choice], name: str, value: str) -> Choice:
    """The member that `value` names. Raises ValueError: there is none."""
    if value not in list(kind):
        raise ValueError(f"{name} is {value!r}, must be one of: {', '.join(kind)}")
    return kind(value)
