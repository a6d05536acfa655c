"""Several directions in one translation model; a token before the source names the target language (Johnson et al. 2017)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Tokenizer

from triptych_text.languages import is_language
from triptych_training.errors import CheckpointError, RecipeError

DIRECTED = re.compile(r"([A-Za-z][\w-]*):([A-Za-z][\w-]*)=(.+)", re.DOTALL)  # en:de=FILE
Direction = tuple[str, str]


@dataclass(frozen=True)
class ModelLanguages:
    """Languages of a model with several directions; empty for a model with one.

    sources    codes; the first is the language of the checkpoint's samples
    targets    code -> id of the token before the source; the first is the language of the samples
    """

    sources: tuple[str, ...] = ()
    targets: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, member: Any) -> "ModelLanguages":
        """Read the member of config.json; raises TypeError or ValueError if it is malformed."""
        if not isinstance(member, Mapping) or not isinstance(member.get("targets"), Mapping):
            raise TypeError("not an object with sources and targets")
        targets = {str(code): int(number) for code, number in member["targets"].items()}
        return cls(tuple(map(str, member.get("sources", ()))), targets)


@dataclass(frozen=True)
class DirectedFile:
    """File of sentence pairs and their languages."""

    direction: Direction
    path: str


def directed_files(paths: Sequence[str], default: Direction) -> list[DirectedFile]:
    """Parse `FILE`, which is in the direction `default`, and `en:de=FILE`.

    Raises:
        RecipeError: a file's languages are not given, or are given twice, or are no language codes.
    """
    files = []
    for path in paths:
        match = DIRECTED.fullmatch(path)
        if match and any(default):
            raise RecipeError(f"source_language, target_language: leave them out, {path} names its languages")
        if not match and not all(default):
            raise RecipeError(f"source_language, target_language: set both for {path}, or write en:de={path}")
        files.append(DirectedFile((match[1], match[2]), match[3]) if match else DirectedFile(default, path))
        for name, code in zip(("source_language", "target_language"), files[-1].direction, strict=True):
            if not is_language(code):
                raise RecipeError(f"{name}: {code!r} is not a language code such as de, de-DE or deu_Latn")
    return files


def undirected_files(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the files of `FILE` and `en:de=FILE`, without languages."""
    return tuple(match[3] if (match := DIRECTED.fullmatch(path)) else path for path in paths)


def one_language(paths: Sequence[str], side: str, given: str) -> str:
    """Return the language on a side, "source" or "target", that the files name, or else `given`, which may be empty.

    Raises:
        RecipeError: files name other languages than each other or `given`.
    """
    place = ("source", "target").index(side) + 1
    named = [match[place] for path in paths if (match := DIRECTED.fullmatch(path))]
    codes = dict.fromkeys([given, *named] if given else named)
    if len(codes) > 1:
        raise RecipeError(f"{side}_language: {', '.join(codes)} are several; take the files of one {side} at a time")
    return next(iter(codes), "")


def language_token(code: str) -> str:
    """Return the special token of a target language; text that looks like it stays ordinary text."""
    return f"<2{code}>"


def find_languages(directions: Sequence[Direction], tokenizer: Tokenizer) -> ModelLanguages:
    """Look up the languages of these directions, in their order; a single direction needs no tokens.

    Raises:
        CheckpointError: the vocabulary lacks a language.
    """
    if len(set(directions)) < 2:
        return ModelLanguages()
    sources, targets = (tuple(dict.fromkeys(side)) for side in zip(*directions, strict=True))
    ids: dict[str, int | None] = {code: tokenizer.token_to_id(language_token(code)) for code in targets}
    if missing := [language_token(code) for code, number in ids.items() if number is None]:
        raise CheckpointError(f"tokenizer: its vocabulary lacks {', '.join(missing)}")
    return ModelLanguages(sources, {code: number for code, number in ids.items() if number is not None})
