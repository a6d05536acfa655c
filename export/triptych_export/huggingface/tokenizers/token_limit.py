"""Tokenizers that know more tokens than their model has vectors for, such as the <mask> of BART fine-tuned on summaries."""

import json
from typing import Any

from tokenizers import Tokenizer

from triptych_export.errors import SourceError


def limit_tokens(tokenizer: Tokenizer, rows: int) -> Tokenizer:
    """The tokenizer without added tokens whose ids are not below `rows`: a text that spells one out is read as any other.

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
    """Of what is in the vocabulary a BPE makes only what it has merges for; any other model finds everything."""
    if name not in beyond:
        return True
    if name not in content["model"]["vocab"]:
        return False
    return content["model"]["type"] != "BPE" or any("".join(merge) == name for merge in content["model"]["merges"])
