"""Special and added tokens from the JSON files beside a tokenizer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken

from triptych_export.errors import SourceError
from triptych_export.huggingface.folder import Folder

CONFIG = "tokenizer_config.json"
ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
LISTS = ("additional_special_tokens", "extra_special_tokens")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized")


@dataclass(frozen=True)
class SpecialTokens:
    """Special tokens, and all added tokens."""

    roles: Mapping[str, AddedToken]  # special tokens by role, such as "eos_token"
    additional: Sequence[AddedToken]  # other special tokens, in the files' order
    placed: Mapping[int, AddedToken]  # added tokens by id, special or not, if the files give ids

    def name(self, role: str) -> str:
        """Return the token of a role, or an empty string."""
        return self.roles[role].content if role in self.roles else ""

    @property
    def all(self) -> dict[str, AddedToken]:
        """All special tokens by their texts."""
        placed = (token for token in self.placed.values() if token.special)
        return {token.content: token for token in (*self.additional, *self.roles.values(), *placed)}

    def within(self, names: Sequence[str]) -> list[AddedToken]:
        """Return the special tokens among `names`, including added ones.

        Raises:
            SourceError: a file gives a token another id than `names`.
        """
        for index, token in self.placed.items():
            if index < len(names) and names[index] != token.content:
                raise SourceError(
                    f"token {token.content!r}: id {index} in the added tokens, where the vocabulary has {names[index]!r}"
                )
        known = set(names)
        others = (token for token in self.placed.values() if not token.special)
        return [token for token in (*self.all.values(), *others) if token.content in known]

    def behind(self, names: Sequence[str], family: Iterable[str] = ()) -> list[AddedToken]:
        """Return the tokens whose ids follow those of `names`, the vocabulary.

        `family` are tokens that the family always has, in the order of their ids unless a file gives other ids.

        Raises:
            SourceError: ids are not contiguous.
        """
        size, known, special = len(names), set(names), self.all
        placed = {index: token for index, token in self.placed.items() if index >= size}
        elsewhere = {token.content for token in placed.values()}
        rest = [name for name in dict.fromkeys(family) if name not in known]
        assumed = {
            size + place: special.get(name) or special_token(name) for place, name in enumerate(rest) if name not in elsewhere
        }
        tokens = {**assumed, **placed}
        if missing := set(range(size, size + len(tokens))).difference(tokens):
            raise SourceError(f"added tokens: there are ids up to {max(tokens)}, but {min(missing)} is missing")
        return [tokens[index] for index in sorted(tokens)]


def special_token(content: str, lstrip: bool = False) -> AddedToken:
    """Make a token that decoding omits; `lstrip`: it absorbs the preceding space."""
    return AddedToken(content, lstrip=lstrip, normalized=False, special=True)


def read_special_tokens(folder: Folder, defaults: Mapping[str, AddedToken] | None = None) -> SpecialTokens:
    """Read the special tokens of a folder; `defaults` are those of the family by role, if there are any.

    Raises:
        SourceError: a file cannot be read, or a member of it is malformed.
    """
    config = folder.members(CONFIG)
    files = (config, folder.members("special_tokens_map.json"))
    roles = dict(defaults or {})
    for role in ROLES:
        given = next((file[role] for file in files if file.get(role)), None)
        if given and (isinstance(given, dict) or role not in roles or roles[role].content != given):
            roles[role] = _token(role, given, lstrip=role in roles and roles[role].lstrip)
    additional = {token.content: token for file in files for token in _additional(file)}
    ids, decoder = folder.members("added_tokens.json"), config.get("added_tokens_decoder") or {}
    if not isinstance(decoder, dict) or not all(map(str.isdecimal, decoder)) or {*map(type, ids.values())} - {int}:
        raise SourceError(f"{folder.path}: added tokens: {decoder or ids!r:.60}, expected whole numbers as ids")
    reserved = {*additional, *(token.content for token in roles.values())}
    placed = {
        number: special_token(content) if content in reserved else AddedToken(content, normalized=True)
        for content, number in ids.items()
    }
    placed |= {int(number): _token("added_tokens_decoder", token) for number, token in decoder.items()}
    return SpecialTokens(roles, tuple(additional.values()), placed)


def _additional(file: Mapping[str, Any]) -> Iterator[AddedToken]:
    for key in LISTS:
        given = file.get(key) or []
        for token in given.values() if isinstance(given, dict) else given if isinstance(given, list) else [given]:
            yield _token(key, token)


def _token(member: str, given: object, lstrip: bool = False) -> AddedToken:
    """Make a token of its text or an object with it; raises SourceError, which names the member, if there is no text."""
    content = given.get("content") if isinstance(given, dict) else given
    if not isinstance(content, str):
        raise SourceError(f"{member}: {given!r:.60}, expected a token's text")
    if not isinstance(given, dict):
        return special_token(content, lstrip)
    return AddedToken(content, **{flag: bool(given.get(flag)) for flag in FLAGS}, special=bool(given.get("special", True)))
