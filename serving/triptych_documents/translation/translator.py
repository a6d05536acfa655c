"""Translation of one segment: mask, request, check, retry with other stand-ins, put back together.

Written as generators that yield requests and are sent their results. Protected items escalate: unchanged or replaced by a
word; another word; left out and placed by alignment; at last the sentence is split there and its parts are translated
separately, which always keeps everything.
"""

import re
import unicodedata
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.interruption import checkpoint
from triptych_documents.segments.cutting import split_around_protected, split_by_length, split_in_half
from triptych_documents.segments.protected import SEQUENTIAL, ProtectedFinder, ProtectedKind
from triptych_documents.segments.segment import Segment, shown, trim
from triptych_documents.sentences import HumanLookup, Refusal, SentenceRequest, SentenceResult, SentenceTranslation
from triptych_documents.translation.checking import CheckResult, TranslationChecker
from triptych_documents.translation.composing import ComposedTranslation, compose
from triptych_documents.translation.masking import SUBSTITUTIONS, MaskedSentence, Substitution, mask, single_spaced
from triptych_documents.unit import Piece, Unit, joined

Result = TypeVar("Result")
Steps = Generator[Sequence[SentenceRequest], Sequence[SentenceResult], Result]  # one result for each request


def together(every: Sequence[Steps[Result]]) -> Steps[list[Result]]:
    """Run several generators side by side: combine their requests, return their results in order."""
    results: dict[int, Result] = {}
    requests: dict[int, Sequence[SentenceRequest]] = {}

    def advance(index: int, replies: Sequence[SentenceResult] | None) -> None:
        try:
            requests[index] = next(every[index]) if replies is None else every[index].send(replies)
        except StopIteration as end:
            requests.pop(index, None)
            results[index] = end.value

    for index in range(len(every)):
        advance(index, None)
    while requests:
        running = list(requests.items())
        replies = iter((yield [request for _, own in running for request in own]))
        for index, own in running:
            advance(index, list(islice(replies, len(own))))
    return [results[index] for index in range(len(every))]


_TRIES = 4  # attempts before all protected items are left out
_SMALLEST = 40  # characters: shorter text is not split because of a truncated or repetitive translation
_LOOP = 4  # times the source's length: a longer truncated translation is a repetition loop
_REPEATED = re.compile(r"(\w{3}.{1,30}?)\1\1")  # the same words, or parts of words, three times in a row
_SENTENCE_END = re.compile(r"[.。]$")
_UNREADABLE = "\ufffd"  # written for half a character
_SHOWN = 60  # characters of a text in a message


@dataclass(frozen=True, slots=True)
class TranslatedSegment:
    """Translation of a segment."""

    pieces: tuple[Piece, ...]  # with all codes of the source
    notes: tuple[Finding, ...] = ()  # without their place
    kept: bool = False  # nothing was translated


class SegmentTranslator:
    """Translate segments by yielding requests."""

    def __init__(self, finder: ProtectedFinder, languages: tuple[str, str], longest: int) -> None:
        self._checker = TranslationChecker(finder, languages)
        self._longest = longest

    def translate(self, segment: Segment, people: HumanLookup | None = None) -> Steps[TranslatedSegment]:
        """Translate a sentence and keep what surrounds it. A human translation of the whole sentence is not checked."""
        checkpoint()
        before, core, after = trim(segment)
        if not core.has_words:
            return TranslatedSegment(segment.pieces, kept=True)
        if (known := _human(segment, people)) is not None:
            whole = shown(segment.pieces)
            lead, tail = whole[: len(whole) - len(whole.lstrip())], whole[len(whole.rstrip()) :]
            return TranslatedSegment((lead + known + tail,))
        known = _human(core, people)
        translated = TranslatedSegment((known,)) if known is not None else (yield from self._translate_core(core))
        if not before and not after:
            return translated
        return TranslatedSegment(joined([*before, *translated.pieces, *after]), translated.notes, translated.kept)

    def _translate_core(self, core: Segment) -> Steps[TranslatedSegment]:
        if len(core.text) > self._longest and len(parts := split_by_length(core, self._longest)) > 1:
            return (yield from self._separately(parts, core))
        if len(core.text) > self._longest + sum(item.end - item.start for item in core.protected):
            return _refused(core, f"a word of {len(core.text):,} characters, the maximum is {self._longest:,}")
        return (yield from self._with_retries(core))

    def _with_retries(self, core: Segment) -> Steps[TranslatedSegment]:
        """Try stronger substitutions until everything came through."""
        steps = [0] * len(core.protected)
        attempt = 0
        while True:
            sentence = mask(
                core, [_substitution(core, index, step, last=attempt == _TRIES) for index, step in enumerate(steps)]
            )
            reply = (yield [_request(core, sentence)])[0]
            if isinstance(reply, Refusal):
                return (yield from self._in_halves(core, FindingKind.REFUSED, reply.problem))
            text = clean(reply.text)
            if found := fault(core.text, text, reply.truncated):
                return (yield from self._in_halves(core, *found))
            if text == sentence.text.strip() and not any(item.term for item in core.protected):
                return TranslatedSegment(core.pieces)
            if not core.tags and not core.protected and self._checker.is_plain(text) and not reply.truncated:
                return TranslatedSegment((text,))
            if reply.alignment is None and any(masked.substitution is Substitution.OUT for masked in sentence.spans):
                return (yield from self._separately(split_around_protected(core), core))
            checked = self._checker.check(sentence, text, reply.alignment)
            failed = {
                index
                for index in checked.failed
                if attempt < _TRIES and steps[index] < len(SUBSTITUTIONS[core.protected[index].kind]) - 1
            }
            if not failed:
                return (yield from self._composed(core, sentence, reply, checked))
            for index in failed:
                steps[index] += 1
            attempt += 1

    def _composed(
        self, core: Segment, sentence: MaskedSentence, reply: SentenceTranslation, checked: CheckResult
    ) -> Steps[TranslatedSegment]:
        composed = compose(core, sentence, clean(reply.text), reply.alignment, checked)
        if not composed.protected_sure or _is_reordered(core, sentence, checked, composed):
            return (yield from self._separately(split_around_protected(core), core))
        return TranslatedSegment(composed.pieces, tuple(_notes(core, sentence, reply, checked, composed)))

    def _in_halves(self, core: Segment, kind: FindingKind, problem: str) -> Steps[TranslatedSegment]:
        """Split a sentence that the translator rejects or whose translation is of no use."""
        if len(core.text) > 1 and len(parts := split_in_half(core)) > 1:
            return (yield from self._separately(parts, core))
        return _refused(core, problem, kind)

    def _separately(self, parts: Sequence[Segment], core: Segment) -> Steps[TranslatedSegment]:
        if len(parts) == 1:
            return _refused(core, "it cannot be split")
        translated = yield from together([self.translate(part) for part in parts])
        pieces = [piece for part, one in zip(parts, translated, strict=True) for piece in _without_full_stop(part, one)]
        notes = dict.fromkeys(note for one in translated for note in one.notes)
        return TranslatedSegment(joined(pieces), tuple(notes), all(one.kept for one in translated))


def _human(segment: Segment, people: HumanLookup | None) -> str | None:
    """Return people's translation of a sentence as it stands in the document."""
    source = Unit(segment.pieces, "").plain if people else None
    return people(single_spaced(source).strip()) if people and source is not None else None


def _substitution(core: Segment, index: int, step: int, *, last: bool) -> Substitution:
    item = core.protected[index]
    if last and item.kind is not ProtectedKind.TERM:
        return Substitution.OUT
    return SUBSTITUTIONS[item.kind][step]


def _request(core: Segment, sentence: MaskedSentence) -> SentenceRequest:
    if not core.tags and not core.protected:
        return SentenceRequest(sentence.text)
    # Only an alignment can place tags.
    aligned = any(not tag.space for tag in core.tags) or any(
        masked.substitution is Substitution.OUT or masked.item.kind is ProtectedKind.TERM for masked in sentence.spans
    )
    return SentenceRequest(sentence.text, aligned)


def fault(source: str, text: str, truncated: bool) -> tuple[FindingKind, str] | None:
    """Return why a translation is of no use: the finding to report if the source cannot be split."""
    if not any(map(str.isalnum, text)):
        return FindingKind.REFUSED, "the translation is empty"
    if _UNREADABLE in text and _UNREADABLE not in source:
        return FindingKind.REFUSED, "the translation has an unreadable character"
    is_long = len(source) > _SMALLEST
    if truncated and (is_long or len(text) > _LOOP * len(source)):
        return FindingKind.TRUNCATED, "the translation reached its length limit"
    if is_long and _REPEATED.search(text) and not _REPEATED.search(source):
        return FindingKind.TRUNCATED, "the translation repeats itself"
    return None


def clean(text: str) -> str:
    """Normalize a translation to NFC and strip surrounding white space."""
    return (text if text.isascii() else unicodedata.normalize("NFC", text)).strip()


def _refused(core: Segment, problem: str, kind: FindingKind = FindingKind.REFUSED) -> TranslatedSegment:
    note = Finding(kind, Severity.ERROR, "", f"{_short(core.text)}: {problem}; not translated")
    return TranslatedSegment(core.pieces, (note,), kept=True)


def _is_reordered(core: Segment, sentence: MaskedSentence, checked: CheckResult, composed: ComposedTranslation) -> bool:
    """Return whether placeholders that only their order tells apart, such as two `%s`, come in another order."""
    masked = [
        one for one in sentence.spans if any(isinstance(piece, str) and SEQUENTIAL.search(piece) for piece in one.item.pieces)
    ]
    if len(masked) <= 1:
        return False
    spans = {one.span for one in masked}
    placed = [source for _, source in sorted(checked.anchors.items()) if source in spans]
    # Those that were left out of the sentence have no anchor.
    written = re.compile("|".join(sorted((re.escape(shown(one.item.pieces)) for one in masked), key=len, reverse=True)))
    return placed != sorted(placed) or written.findall(shown(composed.pieces)) != written.findall(shown(core.pieces))


def _without_full_stop(part: Segment, translated: TranslatedSegment) -> tuple[Piece, ...]:
    """Remove the full stop that a model adds to a part of a sentence."""
    pieces = translated.pieces
    if translated.kept or not pieces or not isinstance(last := pieces[-1], str) or _SENTENCE_END.search(part.text.rstrip()):
        return pieces
    return (*pieces[:-1], re.sub(r"[.。](\s*)$", r"\1", last))


def _notes(
    core: Segment, sentence: MaskedSentence, reply: SentenceTranslation, checked: CheckResult, composed: ComposedTranslation
) -> Iterator[Finding]:
    for index in sorted(checked.failed):
        item = sentence.spans[index].item
        if item.term:
            where = _short(shown(composed.pieces))
            yield _warning(FindingKind.GLOSSARY, f"{item.term.source!r} is not translated as {item.term.target!r}: {where}")
        else:
            yield _warning(FindingKind.PLACEHOLDER, f"{_short(shown(item.pieces))} is not in the translation")
    for text in dict.fromkeys(checked.invented):
        name = f"number {text}" if text[-1].isdigit() else _short(text)
        yield _warning(FindingKind.PLACEHOLDER, f"{name} appears only in the translation")
    if not composed.sure:
        yield _warning(FindingKind.TAG, f"tags were placed by proportion: {_short(core.text)}")
    if reply.truncated:
        yield _warning(FindingKind.TRUNCATED, f"the translation reached its length limit: {_short(core.text)}")


def _warning(kind: FindingKind, message: str) -> Finding:
    return Finding(kind, Severity.WARNING, "", message)


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
