"""How alike two candidates answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer


@dataclass(frozen=True)
class Agreement:
    """In percent."""

    sentences: float  # identical ones
    tokens: float  # equal in their place, of the longer translation's


def compare(tokenizer: Tokenizer, expected: Sequence[str], texts: Sequence[str]) -> Agreement:
    """Of `texts` with `expected`, both cut into tokens anew: gRPC answers with texts alone."""
    lefts, rights = ([encoding.ids for encoding in tokenizer.encode_batch(list(side))] for side in (expected, texts))
    pairs = list(zip(lefts, rights, strict=True))
    places = sum(max(len(left), len(right)) for left, right in pairs)
    hits = sum(a == b for left, right in pairs for a, b in zip(left, right, strict=False))
    equal = sum(left == right for left, right in pairs)
    return Agreement(round(100 * equal / max(1, len(pairs)), 2), round(100 * hits / max(1, places), 2))
