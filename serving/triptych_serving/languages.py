"""Language codes: `de`, `de-DE` and `deu_Latn` mean the same (BCP 47, FLORES-200)."""

from collections.abc import Iterable

import langcodes

from triptych_serving.errors import InvalidInputError


def find_language(code: str, offered: Iterable[str], field: str) -> str | None:
    """Which of `offered` the code means, or None.

    Regions are ignored; scripts must agree where both sides name one.

    Raises:
        InvalidInputError: `code` is not a language code at all; names `field`.
    """
    try:
        wanted = langcodes.Language.get(code)
    except langcodes.LanguageTagError as error:
        raise InvalidInputError(field, f"{code!r} is not a language code ({error})") from error
    return next((candidate for candidate in offered if _same(wanted, langcodes.Language.get(candidate))), None)


def _same(left: langcodes.Language, right: langcodes.Language) -> bool:
    scripts = {left.script or right.script, right.script or left.script}
    return left.language == right.language and len(scripts) == 1
