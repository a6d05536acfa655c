"""Language codes."""

import re
from functools import lru_cache
from typing import Any

from langcodes import Language, language_distance, standardize_tag
from langcodes.tag_parser import LanguageTagError

UNDETERMINED = "und"  # unknown language
LONGEST = 100  # maximum characters of a code
NO_REGION = "XX"  # placeholder for a region in codes such as en_XX
CACHED = 4096  # codes, which come from callers
ARGOS_CODES = {"pb": "pt-BR", "zt": "zh-Hant"}  # of Argos Translate alone, and those that others know
CODE = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST}}}")


class BoundedCache(dict[Any, Any]):
    """A cache that keeps its first entries and takes no more once it is full. Thread-safe, as nothing ever leaves it."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if len(self) < 4 * CACHED:  # langcodes makes several entries for a code
            super().__setitem__(key, value)


# langcodes itself would keep every code that it has ever seen.
Language._PARSE_CACHE, Language._INSTANCES = BoundedCache(Language._PARSE_CACHE), BoundedCache(Language._INSTANCES)
language_distance._DISTANCE_CACHE = BoundedCache(language_distance._DISTANCE_CACHE)


def parse_language(code: str) -> Language | None:
    """Parse a BCP 47 or FLORES-200 code; None if it is neither."""
    return _parse(code) if CODE.fullmatch(code) else None


@lru_cache(maxsize=CACHED)
def _parse(code: str) -> Language | None:
    try:
        return Language.get(code)
    except LanguageTagError:
        return None


def is_language(code: str) -> bool:
    """Return True if the code is well-formed."""
    return parse_language(code) is not None


def region_of(language: Language) -> str | None:
    """Return the region, such as "BR" for pt_BR; None if the code names none."""
    return None if language.territory == NO_REGION else language.territory


def primary_language(code: str) -> str:
    """Return the primary language in its shortest form: `en` for en-GB, `de` for deu_Latn; `und` if unknown."""
    found = parse_language(code)
    return (found.language if found else None) or UNDETERMINED


def standard_tag(code: str) -> str:
    """Return the code as BCP 47 recommends it: `de` for deu_Latn, `pt-BR` for pt_BR; "" if it names no language."""
    found = parse_language(code)
    if found is None or found.language is None:
        return ""
    return standardize_tag(Language.make(found.language, found.extlangs, found.script, region_of(found)).to_tag())


def languages_differ(one: str, other: str) -> bool:
    """Return whether two tags or locales name different languages, regardless of region; False if one is unknown."""
    first, second = (re.split("[-_@.]", tag.strip())[0].lower() for tag in (one, other))
    return first.isalpha() and bool(second) and first != second
