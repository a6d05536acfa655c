"""Limit of a tokenizer's ids to the model's embedding rows, such as for BART's <mask> after fine-tuning."""

import json
from typing import Any

from tokenizers import Tokenizer

from triptych_export.errors import SourceError


def limit_tokens(tokenizer: Tokenizer, rows: int) -> Tokenizer:
    """Remove added tokens with ids of `rows` and above; a text that spells one out is ordinary text.

    Raises:
        SourceError: other tokens than added ones have such ids, and texts may have them.
    """
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if not any(number >= rows for number in vocabulary.values()):
        return tokenizer
    content = json.loads(tokenizer.to_str())
    beyond = {token["content"] for token in content["added_tokens"] if token["id"] >= rows}
    if found := sorted(name for name, number in vocabulary.items() if number >= rows and _may_be_made(name, content, beyond)):
        raise SourceError(f"tokenizer: {found[0]!r} is number {vocabulary[found[0]]:,}, and the model has {rows:,} embeddings")
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] not in beyond]
    limited: Tokenizer = Tokenizer.from_str(json.dumps(content))
    return limited


def _may_be_made(name: str, content: dict[str, Any], beyond: set[str]) -> bool:
    """Whether a model can produce a token: a BPE needs merges for it, other models match every entry."""
    if name not in beyond:
        return True
    if name not in content["model"]["vocab"]:
        return False
    return content["model"]["type"] != "BPE" or any("".join(merge) == name for merge in content["model"]["merges"])
