"""Numbers in texts: whether a translation has those of its source. Digits count; signs between them are each language's own."""

import re
from collections import Counter
from collections.abc import Iterable

from triptych_text.languages import primary_language

# Unicode CLDR, "decimal": in these languages, as far as they matter here, it is a point; elsewhere a comma.
_POINT = frozenset(
    ("am", "bn", "cy", "en", "fa", "ga", "gu", "he", "hi", "ja", "kn", "ko", "ml", "mr", "ms", "mt", "my", "ne", "pa")
)
_POINT |= {"sw", "ta", "te", "th", "ur", "yo", "zh", "zu"}
_NUMBER = re.compile(r"\d+(?:[.,'’\u00a0\u202f]\d+)*")
_SIGN = re.compile(r"[.,'’\u00a0\u202f]")
_GROUP = 3  # digits between grouping signs

Value = tuple[str, ...]  # runs of digits


def numbers_of(text: str) -> list[str]:
    """As they stand there."""
    return _NUMBER.findall(text)


def missing_numbers(source: str, target: str, languages: tuple[str, str]) -> tuple[list[str], list[str]]:
    """Which numbers a translation lacks, and which it has beside those of its source.

    A number may stand as in the source, or with the signs of the target's language.

    Args:
        source: a sentence.
        target: its translation.
        languages: of both, BCP 47; "" where nobody said.
    """
    wanted, found = Counter(numbers_of(source)), Counter(numbers_of(target))
    wanted, found = wanted - found, found - wanted
    lacking = list(wanted.elements())
    by_value: dict[Value, list[str]] = {}
    for number in reversed(lacking):
        by_value.setdefault(_value(number, languages[0]), []).append(number)
    beside: list[str] = []
    for number in found.elements():
        if same := by_value.get(_value(number, languages[1])):
            lacking.remove(same.pop())
        else:
            beside.append(number)
    return lacking, beside


def _value(number: str, language: str) -> Value:
    """Runs of digits without those borders that only group them: 1,234.5 and 1.234,5 and 1234,5 are ("1234", "5")."""
    decimal = _decimal(language)
    runs, signs = _SIGN.split(_ascii(number)), _SIGN.findall(number)
    value = [runs[0]]
    for run, sign in zip(runs[1:], signs, strict=True):
        if sign != decimal and len(run) == _GROUP and len(value) == 1:
            value[0] += run
        else:
            value.append(run)
    return tuple(value)


def _decimal(language: str) -> str:
    if not language:
        return ""
    return "." if primary_language(language) in _POINT else ","


def _ascii(digits: Iterable[str]) -> str:
    """Digits of any script as those of ASCII."""
    return "".join(str(int(sign)) if sign.isdecimal() else sign for sign in digits)
