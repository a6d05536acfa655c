"""How asks are decoded."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from triptych_cli.decoding import Decoding
from triptych_documents.asking import Ask


def decoding_values(decoding: Decoding, asks: Sequence[Ask], aligned: bool) -> dict[str, Any]:
    """Members of either DecodingOptions, for these asks."""
    prefixes = tuple(ask.prefix or decoding.target_prefix for ask in asks)
    return {**decoding.values(0), "target_prefix": prefixes if any(prefixes) else (), "return_alignment": aligned}


def given(decoding: Decoding) -> dict[str, Any]:
    """The options that are not left to the model."""
    return {name: value for name, value in asdict(decoding).items() if value not in (None, "", (), False)}
