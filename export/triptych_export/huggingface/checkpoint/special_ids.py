"""Special token ids of a text encoder."""

from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from triptych_export.errors import SourceError
from triptych_export.huggingface.folder import CONFIG, Folder

TOKEN_FILES = ("tokenizer_config.json", "special_tokens_map.json")
USUAL = {"mask_token": ("[MASK]", "<mask>"), "pad_token": ("[PAD]", "<pad>")}


@dataclass(frozen=True)
class SpecialIds:
    """Special ids; without a mask token, `mask` is the padding id and never used."""

    pad: int
    cls: int
    sep: int
    mask: int


def special_ids(folder: Folder, tokenizer: Tokenizer, masks: bool) -> SpecialIds:
    """Read the special ids from config.json and the tokenizer.

    Args:
        folder: the checkpoint's.
        tokenizer: made from it.
        masks: the model fills them, so there has to be one.

    Raises:
        SourceError: the tokenizer frames texts otherwise, lacks a token, or has more tokens than the model's embedding rows.
    """
    framing = tokenizer.encode("").ids
    if len(framing) != 2:
        raise SourceError(f"{folder.path}: the tokenizer makes {framing} of an empty text, expected two ids, [CLS] and [SEP]")
    size, highest = folder.config.get("vocab_size"), max(tokenizer.get_vocab(with_added_tokens=True).values())
    if isinstance(size, int) and highest >= size:
        token = tokenizer.id_to_token(highest)
        raise SourceError(
            f"{folder.path}: the tokenizer has {token!r} as number {highest:,}, {CONFIG} a vocab_size of {size:,}"
        )
    pad = folder.config.get("pad_token_id")
    pad = _number(folder, tokenizer, "pad_token") if pad is None else pad
    if pad is None:
        raise SourceError(f"{folder.path}: neither {CONFIG} nor the tokenizer names a token for padding")
    mask = _number(folder, tokenizer, "mask_token")
    if mask is None and masks:
        raise SourceError(f"{folder.path}: the model fills masks, and its tokenizer has no mask_token")
    return SpecialIds(pad, framing[0], framing[1], pad if mask is None else mask)


def _number(folder: Folder, tokenizer: Tokenizer, name: str) -> int | None:
    named = [_content((folder.read_json(file) or {}).get(name)) for file in TOKEN_FILES]
    numbers = (tokenizer.token_to_id(token) for token in (*named, *USUAL[name]) if token is not None)
    return next((number for number in numbers if number is not None), None)


def _content(token: Any) -> str | None:
    """Return a token's text, stored as a string or an object."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None
