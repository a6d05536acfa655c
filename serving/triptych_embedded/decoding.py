"""How asks are decoded."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from triptych_cli.common.decoding import Decoding
from triptych_documents.sentences import SentenceRequest


def decoding_values(decoding: Decoding, asks: Sequence[SentenceRequest], aligned: bool) -> dict[str, Any]:
    """Members of either DecodingOptions, for these asks."""
    prefixes = tuple(ask.prefix or decoding.target_prefix for ask in asks)
    return {**decoding.values(0), "target_prefix": prefixes if any(prefixes) else (), "return_alignment": aligned}


def given(decoding: Decoding) -> dict[str, Any]:
    """The options that are not left to the model."""
    values = ((field, getattr(decoding, field.name)) for field in fields(decoding))
    return {field.name: value for field, value in values if value != field.default}  # 0 is an option, too
