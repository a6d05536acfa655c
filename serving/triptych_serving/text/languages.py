"""The languages of a translation model: which of its codes a request means, and the frame of each pair.

`de`, `de-DE` and `deu_Latn` mean the same (BCP 47, FLORES-200), and so do `zh` and `cmn`, `no` and `nb`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from langcodes import Language, tag_distance

from triptych_serving.bundle.manifest import Frames, Framing
from triptych_serving.errors import InvalidInputError
from triptych_text.languages import LONGEST, UNDETERMINED, is_language, region_of

SOURCE, TARGET = "source_language_code", "target_language_code"  # request fields
SAME = 1  # CLDR's distance between names of one language, such as a macrolanguage and its main member, is no greater
SHOWN = 8  # codes of a longer list

Rank = tuple[bool, int, bool]


class LanguagePairs(Protocol):
    """The languages of a manifest."""

    @property
    def source_languages(self) -> tuple[str, ...]:
        """Codes."""

    @property
    def target_languages(self) -> tuple[str, ...]:
        """Codes."""

    @property
    def frames(self) -> Frames:
        """The frames around texts, by language."""


@dataclass(frozen=True)
class LanguagePair:
    """A resolved pair: its codes in the manifest, the language that sentence splitting uses, and the frame around the texts."""

    source: str
    target: str
    language: str
    framing: Framing


def has_pair(manifest: LanguagePairs, source: str, target: str) -> bool:
    """Return True if the model offers the requested codes; an empty code matches any language.

    Raises:
        InvalidInputError: a code is malformed; names its field.
    """
    sides = (source, manifest.source_languages, SOURCE), (target, manifest.target_languages, TARGET)
    return all(not code or find_language(code, offered, field) is not None for code, offered, field in sides)


def takes_any(manifest: LanguagePairs) -> bool:
    """Return True if the model declares no particular language on at least one side."""
    return UNDETERMINED in manifest.source_languages or UNDETERMINED in manifest.target_languages


def resolve_pair(manifest: LanguagePairs, source: str, target: str) -> LanguagePair:
    """Resolve a request's codes to the model's pair; a code may be empty if the model has one language on that side.

    Raises:
        InvalidInputError: a code is malformed, not one of the model's, or missing although there are several; names its field.
    """
    near = choose_language(source, manifest.source_languages, SOURCE)
    far = choose_language(target, manifest.target_languages, TARGET)
    return LanguagePair(near, far, source if source and near == UNDETERMINED else near, manifest.frames.of(near, far))


def find_language(code: str, offered: Sequence[str], field: str) -> str | None:
    """Return the offered code that means the same language as `code`, or None.

    The language must be the same, where a macrolanguage equals its main member (`zh`: `cmn`, `no`: `nb`, `ar`: `arb`), and so
    must the scripts if both sides name one. Of several matches, prefer the likeliest script, then the same region, then no
    region, then the same name, then the first. `und`, if offered, matches every other language.

    Raises:
        InvalidInputError: `code` is malformed; names `field`.
    """
    if not is_language(code):
        problem = f"{code[:LONGEST]!r} is not a language code such as de, de-DE or deu_Latn"
        raise InvalidInputError(field, f"{problem}, of at most {LONGEST} letters, digits, - and _")
    return _find(code, tuple(offered))


def choose_language(code: str, offered: Sequence[str], field: str) -> str:
    """Return the model's code that a request's `code` means; the only one if the request names none.

    Raises:
        InvalidInputError: `code` is malformed, not offered, or missing although there are several; names `field`.
    """
    if not code:
        if len(offered) > 1:
            undetected = "languages are not detected; " if field == SOURCE else ""
            raise InvalidInputError(field, f"{undetected}the model has several, name one of: {list_languages(offered)}")
        return offered[0]
    found = find_language(code, offered, field)
    if found is None:
        raise InvalidInputError(field, f"{code!r} is none of the model's: {list_languages(offered)}")
    return found


def list_languages(codes: Sequence[str]) -> str:
    """Format codes for an error message: all of a short list, else the first few and the total."""
    if len(codes) <= SHOWN:
        return ", ".join(codes)
    return f"{', '.join(codes[:SHOWN])}, ... ({len(codes)} in all)"


def describe_side(codes: Sequence[str]) -> str:
    """Summarise a model's source or target languages, such as "en/de" or "202 languages"."""
    if tuple(codes) == (UNDETERMINED,):
        return "any language"
    return "/".join(codes) if len(codes) <= SHOWN else f"{len(codes)} languages"


def describe_pair(manifest: LanguagePairs) -> str:
    """Summarise what a model translates, such as "en to de"."""
    return f"{describe_side(manifest.source_languages)} to {describe_side(manifest.target_languages)}"


@lru_cache(maxsize=4096)  # a request for a model with 200 languages must not compare all of them
def _find(code: str, offered: tuple[str, ...]) -> str | None:
    if code in offered:
        return code
    wanted = Language.get(code)
    ranks = {candidate: rank for candidate in offered if (rank := _rank(wanted, Language.get(candidate))) is not None}
    if ranks:
        return min(ranks, key=ranks.__getitem__)
    return UNDETERMINED if UNDETERMINED in offered else None


def _rank(wanted: Language, offered: Language) -> Rank | None:
    """Sort key of a match, smaller is better: script, region, name. None if the languages differ."""
    if wanted.language is None or offered.language is None:
        return (False, 0, False) if wanted.language == offered.language else None
    scripts = {wanted.script or offered.script, offered.script or wanted.script}
    if len(scripts) > 1 or tag_distance(wanted.language, offered.language) > SAME:
        return None
    likely = wanted.maximize()
    return likely.script != offered.maximize().script, _region_rank(wanted, offered), wanted.language != offered.language


def _region_rank(wanted: Language, offered: Language) -> int:
    regions = (region_of(wanted), None, region_of(wanted.maximize()))
    region = region_of(offered)
    return regions.index(region) if region in regions else len(regions)
