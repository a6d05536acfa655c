"""Tokenizers from tokenizer.json, with changes from the files beside it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tokenizers import Tokenizer, pre_tokenizers

from triptych_export.errors import SourceError
from triptych_export.huggingface.folder import Folder
from triptych_export.huggingface.tokenizers.piece_tokenizer import cuts, cutter
from triptych_export.huggingface.tokenizers.special_tokens import CONFIG, FLAGS, SpecialTokens

NAME = "tokenizer.json"
# Settings of tokenizer_config.json that win, by the kind of component and its member.
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "BertNormalizer": {
        "do_lower_case": "lowercase",
        "strip_accents": "strip_accents",
        "tokenize_chinese_chars": "handle_chinese_chars",
    },
    "ByteLevel": {"add_prefix_space": "add_prefix_space"},
    "RobertaProcessing": {"add_prefix_space": "add_prefix_space"},
}
NULLABLE = ("strip_accents",)  # null: where letters become small; that of others counts as absent
PARTS = ("normalizer", "pre_tokenizer", "post_processor")
UNCHANGED = ("PreTrainedTokenizerFast", "TokenizersBackend")  # classes that leave the normalizer of the file as it is


def fast_tokenizer(folder: Folder, tokens: SpecialTokens) -> Tokenizer:
    """Load tokenizer.json with all special tokens marked, without truncation and padding.

    Raises:
        SourceError: the file is not a tokenizer.
    """
    content = folder.members(NAME)
    try:
        special = _mark_special(content, tokens)
        config = folder.members(CONFIG)
        parts = ("pre_tokenizer", "post_processor") if config.get("tokenizer_class") in UNCHANGED else PARTS
        for component in components([content.get(name) for name in parts]):
            members = SETTINGS.get(component.get("type", ""), {})
            given = {member: config[setting] for setting, member in members.items() if setting in config}
            component |= {member: value for member, value in given.items() if value is not None or member in NULLABLE}
        content |= {"truncation": None, "padding": None}
        tokenizer: Tokenizer = Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # tokenizers raises bare Exception
        raise SourceError(f"{folder.path / NAME}: not a tokenizer: {error}") from error
    if content["model"].get("type") == "Unigram":  # finds every name of its vocabulary in a text
        pattern = cuts(special, (name for name, _ in content["model"]["vocab"] if name not in special))
        steps = [step for step in (tokenizer.pre_tokenizer, cutter(pattern) if pattern else None) if step is not None]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return tokenizer


def _mark_special(content: dict[str, Any], tokens: SpecialTokens) -> dict[str, None]:
    """Add and mark the special tokens of the other files; return the special names in the model's vocabulary."""
    vocabulary = content["model"]["vocab"]
    ids = vocabulary if isinstance(vocabulary, dict) else {entry[0]: index for index, entry in enumerate(vocabulary)}
    added = {token["content"]: token for token in content.get("added_tokens", ())}
    for number, token in tokens.placed.items():
        if token.content not in added:
            added[token.content] = _member(ids.get(token.content, number), token)
    for name, token in tokens.all.items():
        if name in added:
            added[name]["special"] = True
        elif name in ids:
            added[name] = _member(ids[name], token)
    content["added_tokens"] = sorted(added.values(), key=lambda member: int(member["id"]))
    return {name: None for name, member in added.items() if member["special"] and name in ids}


def _member(number: int, token: Any) -> dict[str, Any]:
    return {"id": number, "content": token.content, **{flag: getattr(token, flag) for flag in FLAGS}, "special": token.special}


def components(members: Any) -> Iterator[dict[str, Any]]:
    """Iterate over all JSON objects in a value."""
    if isinstance(members, dict):
        yield members
        members = list(members.values())
    if isinstance(members, list):
        for member in members:
            yield from components(member)
