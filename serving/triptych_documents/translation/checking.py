"""Checks of a translation: stand-ins, numbers, kept words and glossary terms must have come through.

Numbers are compared by their digits; separators depend on the language.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from triptych_documents.rules import Term
from triptych_documents.segments.protected import ACRONYM, ProtectedFinder, ProtectedKind, is_word
from triptych_documents.sentences import Alignment, Span
from triptych_documents.translation.masking import MaskedSentence, MaskedSpan, Substitution
from triptych_documents.translation.tag_placement import TagNode, TagPlacer
from triptych_documents.translation.word_links import link
from triptych_documents.unit import Piece
from triptych_text.languages import primary_language

# Languages whose decimal separator is a point (Unicode CLDR, "decimal"); elsewhere it is a comma.
_POINT = frozenset(
    ("am", "bn", "cy", "en", "fa", "ga", "gu", "he", "hi", "ja", "kn", "ko", "ml", "mr", "ms", "mt", "my", "ne", "pa")
)
_POINT |= {"sw", "ta", "te", "th", "ur", "yo", "zh", "zu"}
_NUMBER = re.compile(r"\d+(?:[.,'’\u00a0\u202f]\d+)*")
_SIGN = re.compile(r"[.,'’\u00a0\u202f]")
_GROUP = 3  # digits between grouping separators

Value = tuple[str, ...]  # runs of digits


def missing_numbers(source: str, target: str, languages: tuple[str, str]) -> tuple[list[str], list[str]]:
    """Return the numbers that a translation lacks, and those that its source does not have.

    A number may keep the source's separators or use those of the target language (BCP 47, "" if unknown).
    """
    wanted, found = Counter(_NUMBER.findall(source)), Counter(_NUMBER.findall(target))
    wanted, found = wanted - found, found - wanted
    missing = list(wanted.elements())
    by_value: dict[Value, list[str]] = {}
    for number in reversed(missing):
        by_value.setdefault(_value(number, languages[0]), []).append(number)
    additional: list[str] = []
    for number in found.elements():
        if same := by_value.get(_value(number, languages[1])):
            missing.remove(same.pop())
        else:
            additional.append(number)
    return missing, additional


def _value(number: str, language: str) -> Value:
    """Split into runs of digits without grouping: 1,234.5 and 1.234,5 and 1234,5 are ("1234", "5"); 4.8.5 is whole."""
    decimal = "" if not language else "." if primary_language(language) in _POINT else ","
    runs, signs = _SIGN.split(_ascii(number)), _SIGN.findall(number)
    value = [runs[0]]
    for run, sign in zip(runs[1:], signs, strict=True):
        if sign != decimal and len(run) == _GROUP and len(value) == 1:
            value[0] += run
        elif decimal and sign != decimal:
            return (_ascii(number),)
        else:
            value.append(run)
    return tuple(value) if len(value) <= 2 else (_ascii(number),)  # a version or a date keeps its separators


def _ascii(digits: str) -> str:
    return "".join(str(int(sign)) if sign.isdecimal() else sign for sign in digits)


_KEPT = (ProtectedKind.KEEP, ProtectedKind.ACRONYM)
_ENDINGS = 3  # additional letters of an inflected term
_SMALL = 3  # maximum length of words such as articles, stripped from an aligned term
_REPEATED, _TRIPLED = re.compile(r"(.)\1+"), re.compile(r"(.)\1\1")
_SHORT = 3  # letters of an acronym that others may begin with: US and USA
_MORE_WORDS = 2  # words that the translation of a term may have more than its source


@dataclass
class CheckResult:
    """Result of checking one translation."""

    failed: set[int] = field(default_factory=set)  # indices of the masked spans that did not come through
    anchors: dict[Span, Span] = field(default_factory=dict)  # spans of the translation and the masked spans that they come from
    replaced: dict[Span, tuple[Piece, ...]] = field(default_factory=dict)  # pieces to put in place of spans of the translation
    invented: list[str] = field(default_factory=list)  # numbers and placeholders that the source does not have


class TranslationChecker:
    """Check translations of masked sentences."""

    def __init__(self, finder: ProtectedFinder, languages: tuple[str, str]) -> None:
        self._finder = finder
        self._languages = languages

    def is_plain(self, text: str) -> bool:
        """Return whether a translation of a sentence without protected items has none either."""
        return not self._finder.hints_at(text)

    def check(self, sentence: MaskedSentence, text: str, alignment: Alignment | None) -> CheckResult:
        """Check a translation."""
        checked = CheckResult()
        for index, masked in enumerate(sentence.spans):
            if masked.substitution in (Substitution.NAME, Substitution.NUMBER):
                self._check_stand_in(checked, index, masked, text)
            elif masked.substitution is Substitution.UNCHANGED and masked.item.kind in _KEPT:
                self._check_kept(checked, index, masked, sentence, text)
        for index, masked in enumerate(sentence.spans):
            if masked.substitution is Substitution.UNCHANGED and masked.item.kind is ProtectedKind.TERM and masked.item.term:
                self._check_term(checked, index, masked.item.term, sentence, text, alignment)
        self._check_numbers(checked, sentence, text)
        known = self._finder.invented(sentence.text)  # such as Tom() for %s()
        checked.invented += [one for one in self._finder.invented(text) if one not in known]
        return checked

    def _check_stand_in(self, checked: CheckResult, index: int, masked: MaskedSpan, text: str) -> None:
        found = _occurrences(masked.word, text, genitive=True)
        if len(found) != 1:
            checked.failed.add(index)
            return
        checked.anchors[found[0]] = masked.span
        checked.replaced[found[0]] = (masked.item.term.target,) if masked.item.term else masked.item.pieces

    def _check_kept(self, checked: CheckResult, index: int, masked: MaskedSpan, sentence: MaskedSentence, text: str) -> None:
        same = [other for other in sentence.spans if other.word == masked.word]
        found = _occurrences(masked.word, text)
        if len(found) != len(same):
            if masked.item.kind is ProtectedKind.KEEP or _is_misspelt(masked.word, text):
                checked.failed.add(index)
        else:
            checked.anchors[found[same.index(masked)]] = masked.span

    def _check_term(
        self, checked: CheckResult, index: int, term: Term, sentence: MaskedSentence, text: str, alignment: Alignment | None
    ) -> None:
        masked = sentence.spans[index]
        inflected = rf"(?<!\w){re.escape(term.target)}\w{{0,{_ENDINGS}}}(?!\w)"
        found = (match.span() for match in re.finditer(inflected, text, re.IGNORECASE))
        if (span := next((span for span in found if span not in checked.anchors), None)) is not None:
            checked.anchors[span] = masked.span
            return
        if alignment is None or (span := self._aligned(masked, sentence, text, alignment, checked)) is None:
            checked.failed.add(index)
            return
        checked.anchors[span] = masked.span
        checked.replaced[span] = (_cased(term, masked.word, text[span[0]]),)

    def _aligned(
        self, masked: MaskedSpan, sentence: MaskedSentence, text: str, alignment: Alignment, checked: CheckResult
    ) -> Span | None:
        """Return the span of the translation that a term became, if the alignment is clear."""
        links = link(sentence.text, text, alignment, checked.anchors)
        placed = TagPlacer(sentence.text, text, links).place([TagNode(*masked.span)])[0]
        words = _without_small(links.target[placed.first : placed.last])
        most = len(masked.word.split()) + _MORE_WORDS
        if not placed.sure or not words or len(words) > most or any(word in checked.anchors for word in words):
            return None
        return words[0][0], words[-1][1]

    def _check_numbers(self, checked: CheckResult, sentence: MaskedSentence, text: str) -> None:
        written = _without(
            sentence.text,
            [masked.span for masked in sentence.spans if masked.substitution in (Substitution.NAME, Substitution.NUMBER)],
        )
        missing, additional = missing_numbers(written, _without(text, list(checked.replaced)), self._languages)
        doubled = {number for number in additional if number in written}
        for index, masked in enumerate(sentence.spans):
            if masked.substitution is Substitution.UNCHANGED and masked.item.kind is ProtectedKind.NUMBER:
                numbers = _NUMBER.findall(masked.word)
                if _takes(missing, numbers) or not doubled.isdisjoint(numbers):
                    checked.failed.add(index)
        checked.invented += additional


def _is_misspelt(acronym: str, text: str) -> bool:
    """Return whether a translation has an acronym with other repetitions of letters, or without its last ones."""
    for found in {match[0] for match in ACRONYM.finditer(text)}:
        repeats = len(found) < len(acronym) or _TRIPLED.search(found) is not None  # PROGRAM may become PROGRAMM
        if repeats and _REPEATED.sub(r"\1", found) == _REPEATED.sub(r"\1", acronym):
            return True
        if len(acronym) > _SHORT and acronym.startswith(found) and acronym not in (found, f"{found}S"):
            return True
    return False


def _without_small(words: Sequence[Span]) -> Sequence[Span]:
    """Strip articles and other short words at both ends."""
    first, last = 0, len(words)
    while last - first > 1 and words[first][1] - words[first][0] <= _SMALL:
        first += 1
    while last - first > 1 and words[last - 1][1] - words[last - 1][0] <= _SMALL:
        last -= 1
    return words[first:last]


def _takes(missing: list[str], numbers: Sequence[str]) -> bool:
    """Return whether any of these numbers is missing, and remove them from `missing`."""
    missed = [number for number in numbers if number in missing]
    for number in missed:
        if number in missing:
            missing.remove(number)
    return bool(missed)


def _occurrences(word: str, text: str, *, genitive: bool = False) -> list[Span]:
    ending = "(?:s|['’]s)?" if genitive else ""
    head, tail = (r"(?<!\w)" if is_word(word[0]) else ""), (rf"(?={ending}(?!\w))" if is_word(word[-1]) else "")
    return [match.span() for match in re.finditer(head + re.escape(word) + tail, text)]


def _cased(term: Term, written: str, became: str) -> str:
    """Return the target, capitalized only if the source was capitalized for its position."""
    if written[:1].isupper() and not term.source[:1].isupper() and became.isupper():
        return term.target[:1].upper() + term.target[1:]
    return term.target


def _without(text: str, spans: Sequence[Span]) -> str:
    parts, at = [], 0
    for start, end in sorted(spans):
        parts.append(text[at:start])
        at = max(at, end)
    return " ".join((*parts, text[at:]))
