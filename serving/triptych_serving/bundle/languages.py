"""Language codes: `de`, `de-DE` and `deu_Latn` mean the same (BCP 47, FLORES-200), and so do `zh` and `cmn`, `no` and `nb`."""

from collections.abc import Sequence
from functools import lru_cache

from langcodes import Language, standardize_tag, tag_distance

from triptych_serving.errors import InvalidInputError
from triptych_text.languages import LONGEST, parse_language

UNDETERMINED = "und"  # of a model that takes any language, or text of none
SAME = 1  # CLDR's distance between names of one language, such as a macrolanguage and its main member, is no greater
SHOWN = 8  # codes of a longer list
NO_REGION = "XX"  # what stands in the place of a region in codes such as en_XX

Rank = tuple[bool, int, bool]


def find_language(code: str, offered: Sequence[str], field: str) -> str | None:
    """Which of `offered` the code means, or None.

    The language must be the same, where a macrolanguage stands for its main member (`zh`: `cmn`, `no`: `nb`, `ar`: `arb`), and
    so must the scripts where both sides name one. Of several that fit it is the one in the likeliest script, then the one of
    the same region, or of none, then the one of the same name, then the first. `und`, where it is offered, means any other
    language too.

    Raises:
        InvalidInputError: `code` is not a language code at all; names `field`.
    """
    if not is_language(code):
        raise InvalidInputError(field, f"{code!r:.{LONGEST}} is not a language code such as de, de-DE or deu_Latn")
    return _find(code, tuple(offered))


def choose_language(code: str, offered: Sequence[str], field: str) -> str:
    """Which of a model's codes a request's `code` means; the only one where the request names none.

    Raises:
        InvalidInputError: `code` is malformed, is none of them, or is missing where there are several; names `field`.
    """
    if not code:
        if len(offered) > 1:
            raise InvalidInputError(field, f"the model has several, name one of: {list_languages(offered)}")
        return offered[0]
    found = find_language(code, offered, field)
    if found is None:
        raise InvalidInputError(field, f"{code!r} is none of the model's: {list_languages(offered)}")
    return found


def list_languages(codes: Sequence[str]) -> str:
    """Codes for people: all of a few, else some and how many there are."""
    if len(codes) <= SHOWN:
        return ", ".join(codes)
    return f"{', '.join(codes[:SHOWN])}, ... ({len(codes)} in all)"


def describe_side(codes: Sequence[str]) -> str:
    """A model's source or target languages in a few words, such as "en/de" or "202 languages"."""
    if tuple(codes) == (UNDETERMINED,):
        return "any language"
    return "/".join(codes) if len(codes) <= SHOWN else f"{len(codes)} languages"


@lru_cache(maxsize=4096)
def is_language(code: str) -> bool:
    """Whether `code` is formed as language codes are."""
    return parse_language(code) is not None


@lru_cache(maxsize=4096)
def standard_tag(code: str) -> str:
    """The code as BCP 47 recommends it: `de` of deu_Latn, `pt-BR` of pt_BR; empty where it says nothing."""
    found = parse_language(code) if code else None
    if found is None or found.language is None:
        return ""
    return standardize_tag(Language.make(found.language, found.extlangs, found.script, _region(found)).to_tag())


@lru_cache(maxsize=4096)  # a request of a model with 200 languages must not look at all of them
def _find(code: str, offered: tuple[str, ...]) -> str | None:
    if code in offered:
        return code
    wanted = Language.get(code)
    ranks = {candidate: rank for candidate in offered if (rank := _rank(wanted, Language.get(candidate))) is not None}
    if ranks:
        return min(ranks, key=ranks.__getitem__)
    return UNDETERMINED if UNDETERMINED in offered else None


def _rank(wanted: Language, offered: Language) -> Rank | None:
    """How well `offered` fits, smaller is better: script, region, name. None where it is something else."""
    if wanted.language is None or offered.language is None:
        return (False, 0, False) if wanted.language == offered.language else None
    scripts = {wanted.script or offered.script, offered.script or wanted.script}
    if len(scripts) > 1 or tag_distance(wanted.language, offered.language) > SAME:
        return None
    likely = wanted.maximize()
    return likely.script != offered.maximize().script, _region_rank(wanted, offered), wanted.language != offered.language


def _region_rank(wanted: Language, offered: Language) -> int:
    regions = (_region(wanted), None, _region(wanted.maximize()))
    region = _region(offered)
    return regions.index(region) if region in regions else len(regions)


def _region(language: Language) -> str | None:
    return None if language.territory == NO_REGION else language.territory
