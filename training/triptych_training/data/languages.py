"""Several directions in one translation model: a token before the source names the language wanted (Johnson et al. 2017)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Tokenizer

from triptych_training.errors import CheckpointError, RecipeError

DIRECTED = re.compile(r"([A-Za-z][\w-]*):([A-Za-z][\w-]*)=(.+)", re.DOTALL)  # en:de=FILE
Direction = tuple[str, str]


@dataclass(frozen=True)
class ModelLanguages:
    """What a model of several directions translates between; empty of a model that has one.

    sources    codes; the first is that of the checkpoint's samples
    targets    code -> id of the token in front of the source; likewise
    """

    sources: tuple[str, ...] = ()
    targets: Mapping[str, int] = field(default_factory=dict)

    def as_member(self) -> dict[str, Any]:
        """As config.json holds it."""
        return {"sources": list(self.sources), "targets": dict(self.targets)}

    @classmethod
    def parse(cls, member: Any) -> "ModelLanguages":
        """What `as_member` made.

        Raises:
            TypeError, ValueError: it is something else.
        """
        if not isinstance(member, Mapping) or not isinstance(member.get("targets"), Mapping):
            raise TypeError("no object with sources and targets")
        targets = {str(code): int(number) for code, number in member["targets"].items()}
        return cls(tuple(map(str, member.get("sources", ()))), targets)


@dataclass(frozen=True)
class DirectedFile:
    """A file of sentence pairs, and which languages they are in."""

    direction: Direction
    path: str


def directed_files(paths: Sequence[str], usual: Direction) -> list[DirectedFile]:
    """What `FILE` and `en:de=FILE` mean; `usual` is the direction of the former.

    Raises:
        RecipeError: a file's languages are not known, or are said twice.
    """
    files = []
    for path in paths:
        match = DIRECTED.fullmatch(path)
        if match and any(usual):
            raise RecipeError(f"source_language, target_language: {path} says itself which they are")
        if not match and not all(usual):
            raise RecipeError(f"source_language, target_language: both are needed for {path}, or en:de={path}")
        files.append(DirectedFile((match[1], match[2]), match[3]) if match else DirectedFile(usual, path))
    return files


def language_token(code: str) -> str:
    """What a vocabulary holds for a target language; text that looks like it is ordinary text."""
    return f"<2{code}>"


def find_languages(directions: Sequence[Direction], tokenizer: Tokenizer) -> ModelLanguages:
    """Of these directions, in their order; one alone needs no tokens.

    Raises:
        CheckpointError: the vocabulary lacks a language.
    """
    if len(set(directions)) < 2:
        return ModelLanguages()
    sources, targets = (tuple(dict.fromkeys(side)) for side in zip(*directions, strict=True))
    ids: dict[str, int | None] = {code: tokenizer.token_to_id(language_token(code)) for code in targets}
    if missing := [language_token(code) for code, number in ids.items() if number is None]:
        raise CheckpointError(f"vocabulary: it has no {', '.join(missing)}")
    return ModelLanguages(sources, {code: number for code, number in ids.items() if number is not None})
