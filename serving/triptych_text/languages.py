"""Which language a code means."""

from functools import lru_cache

from langcodes import Language
from langcodes.tag_parser import LanguageTagError

UNDETERMINED = "und"  # text of no known language
LONGEST = 100  # characters of a code


@lru_cache(maxsize=4096)
def parse_language(code: str) -> Language | None:
    """A code of BCP 47 or FLORES-200; None where it is formed as neither."""
    try:
        return Language.get(code) if len(code) <= LONGEST else None
    except LanguageTagError:
        return None


def primary_language(code: str) -> str:
    """The language alone, in its shortest form: `en` of en-GB, `de` of deu_Latn; `und` where that is not known."""
    found = parse_language(code)
    return (found.language if found else None) or UNDETERMINED
