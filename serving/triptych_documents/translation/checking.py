"""Numbers in texts: whether a translation has those of its source. Digits count; signs between them are each language's own."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from triptych_documents.rules import Term
from triptych_documents.segments.protected import ProtectedFinder, ProtectedKind
from triptych_documents.sentences import Alignment, Span
from triptych_documents.translation.masking import MaskedSentence, MaskedSpan, Substitution
from triptych_documents.translation.tag_placement import TagNode, TagPlacer
from triptych_documents.translation.word_links import link
from triptych_documents.unit import Piece
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


_ENDINGS = 3  # letters that a term may have more or less at its end: it is inflected
_SMALL = 3  # letters of a word that is likely no part of a term
_MORE_WORDS = 2  # that a translation of a term may have beside the source's number of words


@dataclass
class CheckResult:
    """What was found.

    Args:
        failed: things of the wording that did not come through, by their index.
        anchors: places in the translation and where they come from.
        replaced: what stands in the place of some of its words.
        invented: numbers and placeholders that the wording did not have.
    """

    failed: set[int] = field(default_factory=set)
    anchors: dict[Span, Span] = field(default_factory=dict)
    replaced: dict[Span, tuple[Piece, ...]] = field(default_factory=dict)
    invented: list[str] = field(default_factory=list)


class TranslationChecker:
    """Checks translations.

    Args:
        finder: knows what looks like a placeholder.
        languages: source and target.
    """

    def __init__(self, finder: ProtectedFinder, languages: tuple[str, str]) -> None:
        self._finder = finder
        self._languages = languages

    def is_plain(self, text: str) -> bool:
        """The translation has nothing that a source without things could not have."""
        return not self._finder.hints_at(text)

    def check(self, wording: MaskedSentence, text: str, alignment: Alignment | None) -> CheckResult:
        """Look at a translation.

        Args:
            wording: as it was asked.
            text: what came back.
            alignment: of both.
        """
        checked = CheckResult()
        for index, said in enumerate(wording.said):
            if said.way in (Substitution.NAME, Substitution.NUMBER):
                self._check_stand_in(checked, index, said, text)
            elif said.way is Substitution.ITSELF and said.thing.sort is ProtectedKind.KEEP:
                self._check_kept(checked, index, said, wording, text)
        for index, said in enumerate(wording.said):
            if said.way is Substitution.ITSELF and said.thing.sort is ProtectedKind.TERM and said.thing.term:
                self._check_term(checked, index, said.thing.term, wording, text, alignment)
        self._check_numbers(checked, wording, text)
        checked.invented += self._finder.invented(text)
        return checked

    def _check_stand_in(self, checked: CheckResult, index: int, said: MaskedSpan, text: str) -> None:
        found = _occurrences(said.word, text, genitive=True)
        if len(found) != 1:
            checked.failed.add(index)
            return
        checked.anchors[found[0]] = said.span
        checked.replaced[found[0]] = (said.thing.term.target,) if said.thing.term else said.thing.pieces

    def _check_kept(self, checked: CheckResult, index: int, said: MaskedSpan, wording: MaskedSentence, text: str) -> None:
        same = [other for other in wording.said if other.word == said.word]
        found = _occurrences(said.word, text)
        if len(found) != len(same):
            checked.failed.add(index)
        else:
            checked.anchors[found[same.index(said)]] = said.span

    def _check_term(
        self, checked: CheckResult, index: int, term: Term, wording: MaskedSentence, text: str, alignment: Alignment | None
    ) -> None:
        said = wording.said[index]
        found = [span for span in _inflected(term.target, text) if span not in checked.anchors]
        if found:
            checked.anchors[found[0]] = said.span
            return
        if alignment is None or (span := self._aligned(said, wording, text, alignment, checked)) is None:
            checked.failed.add(index)
            return
        checked.anchors[span] = said.span
        checked.replaced[span] = (_cased(term, said.word, text[span[0]]),)

    def _aligned(
        self, said: MaskedSpan, wording: MaskedSentence, text: str, alignment: Alignment, checked: CheckResult
    ) -> Span | None:
        """The words that the term became."""
        links = link(wording.text, text, alignment, checked.anchors)
        placed = TagPlacer(wording.text, text, links).place([TagNode(*said.span)])[0]
        words = _without_small(links.target[placed.first : placed.last])
        most = len(said.word.split()) + _MORE_WORDS
        if not placed.sure or not words or len(words) > most or any(word in checked.anchors for word in words):
            return None
        return words[0][0], words[-1][1]

    def _check_numbers(self, checked: CheckResult, wording: MaskedSentence, text: str) -> None:
        written = _without(
            wording.text, [said.span for said in wording.said if said.way in (Substitution.NAME, Substitution.NUMBER)]
        )
        lacking, beside = missing_numbers(written, _without(text, list(checked.replaced)), self._languages)
        doubled = {number for number in beside if number in written}
        for index, said in enumerate(wording.said):
            if said.way is Substitution.ITSELF and said.thing.sort is ProtectedKind.NUMBER:
                numbers = numbers_of(said.word)
                if _takes(lacking, numbers) or not doubled.isdisjoint(numbers):
                    checked.failed.add(index)
        checked.invented += beside


def _without_small(words: Sequence[Span]) -> Sequence[Span]:
    """Without articles and the like at the ends."""
    first, last = 0, len(words)
    while last - first > 1 and words[first][1] - words[first][0] <= _SMALL:
        first += 1
    while last - first > 1 and words[last - 1][1] - words[last - 1][0] <= _SMALL:
        last -= 1
    return words[first:last]


def _takes(lacking: list[str], numbers: Sequence[str]) -> bool:
    """Whether one of these is lacking; then they are accounted for."""
    missed = [number for number in numbers if number in lacking]
    for number in missed:
        if number in lacking:
            lacking.remove(number)
    return bool(missed)


def _occurrences(word: str, text: str, *, genitive: bool = False) -> list[Span]:
    ending = "(?:s|['’]s)?" if genitive else ""
    head, tail = (r"(?<!\w)" if _is_word(word[0]) else ""), (rf"(?={ending}(?!\w))" if _is_word(word[-1]) else "")
    return [match.span() for match in re.finditer(head + re.escape(word) + tail, text)]


def _inflected(target: str, text: str) -> list[Span]:
    """Where a term's translation stands, whatever its case and ending."""
    stem = re.escape(target)
    return [match.span() for match in re.finditer(rf"(?<!\w){stem}\w{{0,{_ENDINGS}}}(?!\w)", text, re.IGNORECASE)]


def _cased(term: Term, written: str, became: str) -> str:
    """The target, with a capital where only the place of the word in the sentence calls for one."""
    if written[:1].isupper() and not term.source[:1].isupper() and became.isupper():
        return term.target[:1].upper() + term.target[1:]
    return term.target


def _without(text: str, spans: Sequence[Span]) -> str:
    parts, at = [], 0
    for start, end in sorted(spans):
        parts.append(text[at:start])
        at = max(at, end)
    return " ".join((*parts, text[at:]))


def _is_word(sign: str) -> bool:
    return sign.isalnum() or sign == "_"
