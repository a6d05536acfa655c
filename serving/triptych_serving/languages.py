"""Language codes: `de`, `de-DE` and `deu_Latn` mean the same (BCP 47, FLORES-200)."""

from collections.abc import Iterable

from langcodes import Language
from langcodes.tag_parser import LanguageTagError

from triptych_serving.errors import InvalidInputError


def find_language(code: str, offered: Iterable[str], field: str) -> str | None:
    """Which of `offered` the code means, or None.

    Regions are ignored; scripts must agree where both sides name one.

    Raises:
        InvalidInputError: `code` is not a language code at all; names `field`.
    """
    wanted = _parse(code)
    if wanted is None:
        raise InvalidInputError(field, f"{code!r} is not a language code such as de, de-DE or deu_Latn")
    return next((candidate for candidate in offered if _same(wanted, Language.get(candidate))), None)


def is_language(code: str) -> bool:
    """Whether `code` is formed as language codes are."""
    return _parse(code) is not None


def _parse(code: str) -> Language | None:
    try:
        return Language.get(code)
    except LanguageTagError:
        return None


def _same(left: Language, right: Language) -> bool:
    scripts = {left.script or right.script, right.script or left.script}
    return left.language == right.language and len(scripts) == 1


def primary_language(code: str) -> str:
    """The language alone, in its shortest form: `en` of en-GB, `de` of deu_Latn."""
    found = _parse(code)
    return (found.language if found else None) or "und"
