"""Language codes."""

from functools import lru_cache

from langcodes import Language
from langcodes.tag_parser import LanguageTagError

UNDETERMINED = "und"  # unknown language
LONGEST = 100  # maximum characters of a code


@lru_cache(maxsize=4096)
def parse_language(code: str) -> Language | None:
    """Parse a BCP 47 or FLORES-200 code; None if it is neither."""
    try:
        return Language.get(code) if len(code) <= LONGEST else None
    except LanguageTagError:
        return None


def primary_language(code: str) -> str:
    """Return the primary language in its shortest form: `en` for en-GB, `de` for deu_Latn; `und` if unknown."""
    found = parse_language(code)
    return (found.language if found else None) or UNDETERMINED
