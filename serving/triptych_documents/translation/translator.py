"""Translating as generators: they yield what must be asked and are sent the answers, so that nobody here knows who answers."""

import re
import unicodedata
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from triptych_documents.findings import FindingKind, Severity
from triptych_documents.segments.cutting import split_around_protected, split_by_length, split_in_half
from triptych_documents.segments.protected import ProtectedFinder, ProtectedKind
from triptych_documents.segments.segment import Segment, shown, trim
from triptych_documents.sentences import Refusal, SentenceRequest, SentenceTranslation
from triptych_documents.translation.checking import CheckResult, TranslationChecker
from triptych_documents.translation.composing import CheckedTranslation, ComposedTranslation, compose, is_placing
from triptych_documents.translation.masking import SUBSTITUTIONS, MaskedSentence, Substitution, mask
from triptych_documents.unit import Piece, joined

Result = TypeVar("Result")
SentenceResult = SentenceTranslation | Refusal
Steps = Generator[Sequence[SentenceRequest], Sequence[SentenceResult], Result]  # one reply for each ask


def together(every: Sequence[Steps[Result]]) -> Steps[list[Result]]:
    """Side by side: what all of them ask next is asked at once. Results in order."""
    results: dict[int, Result] = {}
    asks: dict[int, Sequence[SentenceRequest]] = {}
    for index, steps in enumerate(every):
        _advance(index, steps, None, asks, results)
    while asks:
        running = list(asks.items())
        replies = yield [ask for _, own in running for ask in own]
        start = 0
        for index, own in running:
            _advance(index, every[index], replies[start : start + len(own)], asks, results)
            start += len(own)
    return [results[index] for index in range(len(every))]


def _advance(
    index: int,
    steps: Steps[Result],
    replies: Sequence[SentenceResult] | None,
    asks: dict[int, Sequence[SentenceRequest]],
    results: dict[int, Result],
) -> None:
    try:
        asks[index] = next(steps) if replies is None else steps.send(replies)
    except StopIteration as end:
        asks.pop(index, None)
        results[index] = end.value


_TRIES = 4  # wordings of one sentence, before all that is to be kept is left out
_SMALLEST = 40  # characters of what is cut further where its translation is cut off
_LOOP = 4  # times the source's length: a translation that was cut off there says the same again and again
_SENTENCE_END = re.compile(r"[.。]$")


@dataclass(frozen=True, slots=True)
class SegmentFinding:
    """A finding that does not know its place yet."""

    kind: FindingKind
    severity: Severity
    message: str


@dataclass(frozen=True, slots=True)
class TranslatedSegment:
    """A segment's translation.

    Args:
        pieces: with all codes of the source.
        notes: what should be known.
        kept: no word of it was translated.
    """

    pieces: tuple[Piece, ...]
    notes: tuple[SegmentFinding, ...] = ()
    kept: bool = False


class SegmentTranslator:
    """Translates segments by asking.

    Args:
        finder: knows what must be kept.
        languages: source and target.
        longest: characters of an ask.
    """

    def __init__(self, finder: ProtectedFinder, languages: tuple[str, str], longest: int) -> None:
        self._checker = TranslationChecker(finder, languages)
        self._longest = longest

    def turn(self, segment: Segment) -> Steps[TranslatedSegment]:
        """A sentence, with what stands around it."""
        sentence = trim(segment)
        if not sentence.core.has_words:
            return TranslatedSegment(segment.pieces, kept=True)
        turned = yield from self._turn_core(sentence.core)
        if not sentence.before and not sentence.after:
            return turned
        return TranslatedSegment(joined([*sentence.before, *turned.pieces, *sentence.after]), turned.notes, turned.kept)

    def _turn_core(self, core: Segment) -> Steps[TranslatedSegment]:
        if len(core.text) > self._longest and len(parts := split_by_length(core, self._longest)) > 1:
            return (yield from self._apart(parts, core))
        if len(core.text) > self._longest + sum(thing.end - thing.start for thing in core.things):
            return _refused(core, f"a word of {len(core.text):,} characters, at most {self._longest:,} are asked")
        return (yield from self._climb(core))

    def _climb(self, core: Segment) -> Steps[TranslatedSegment]:
        """Up the ladder, as far as it takes."""
        steps = [0] * len(core.things)
        attempt = 0
        while True:
            wording = mask(core, [_way(core, index, step, last=attempt == _TRIES) for index, step in enumerate(steps)])
            reply = (yield [_ask(core, wording)])[0]
            if isinstance(reply, Refusal) or not any(map(str.isalnum, reply.text)):
                return (yield from self._halved(core, reply))
            text = clean(reply.text)
            if reply.truncated and (len(core.text) > _SMALLEST or len(text) > _LOOP * len(core.text)):
                return (yield from self._halved(core, reply))
            if text == wording.text.strip() and not any(thing.term for thing in core.things):
                return TranslatedSegment(core.pieces)
            if not core.marks and not core.things and self._checker.is_plain(text) and not reply.truncated:
                return TranslatedSegment((text,))
            if reply.alignment is None and any(said.way is Substitution.OUT for said in wording.said):
                return (yield from self._apart(split_around_protected(core), core))
            checked = self._checker.check(wording, text, reply.alignment)
            failed = {index for index in checked.failed if attempt < _TRIES and steps[index] < _top(core, index)}
            if not failed:
                return (yield from self._composed(core, wording, reply, checked))
            for index in failed:
                steps[index] += 1
            attempt += 1

    def _composed(
        self, core: Segment, wording: MaskedSentence, reply: SentenceTranslation, checked: CheckResult
    ) -> Steps[TranslatedSegment]:
        translation = CheckedTranslation(clean(reply.text), reply.alignment, checked.anchors, checked.replaced)
        composed = compose(core, wording, translation)
        if not composed.things_sure:
            return (yield from self._apart(split_around_protected(core), core))
        return TranslatedSegment(composed.pieces, tuple(_notes(core, wording, reply, checked, composed)))

    def _halved(self, core: Segment, reply: SentenceResult) -> Steps[TranslatedSegment]:
        """What the model cannot take, or goes on about without end."""
        if len(core.text) > 1 and len(parts := split_in_half(core)) > 1:
            return (yield from self._apart(parts, core))
        if isinstance(reply, Refusal):
            return _refused(core, reply.problem)
        if reply.truncated:
            return _refused(core, "the translation ran into its length limit", FindingKind.TRUNCATED)
        return _refused(core, "the translation is empty")

    def _apart(self, parts: Sequence[Segment], core: Segment) -> Steps[TranslatedSegment]:
        """Parts of a sentence, each by itself."""
        if len(parts) == 1:
            return _refused(core, "it cannot be cut")
        turned = yield from together([self.turn(part) for part in parts])
        pieces = [piece for part, one in zip(parts, turned, strict=True) for piece in _unended(part, one)]
        notes = dict.fromkeys(note for one in turned for note in one.notes)
        return TranslatedSegment(joined(pieces), tuple(notes), all(one.kept for one in turned))


def _way(core: Segment, index: int, step: int, *, last: bool) -> Substitution:
    thing = core.things[index]
    if last and thing.sort is not ProtectedKind.TERM:
        return Substitution.OUT
    return SUBSTITUTIONS[thing.sort][step]


def _top(core: Segment, index: int) -> int:
    return len(SUBSTITUTIONS[core.things[index].sort]) - 1


def _ask(core: Segment, wording: MaskedSentence) -> SentenceRequest:
    if not core.marks and not core.things:
        return SentenceRequest(wording.text)
    aligned = is_placing(core) or any(
        said.way is Substitution.OUT or said.thing.sort is ProtectedKind.TERM for said in wording.said
    )
    return SentenceRequest(wording.text, aligned)


def clean(text: str) -> str:
    """A translation in Unicode's form NFC, without white space around it."""
    return (text if text.isascii() else unicodedata.normalize("NFC", text)).strip()


def _refused(core: Segment, problem: str, kind: FindingKind = FindingKind.REFUSED) -> TranslatedSegment:
    return TranslatedSegment(
        core.pieces, (SegmentFinding(kind, Severity.ERROR, f"{_short(core.text)}: {problem}; left as it is"),), kept=True
    )


def _unended(part: Segment, turned: TranslatedSegment) -> tuple[Piece, ...]:
    """Without the full stop that a model gives to a part of a sentence."""
    pieces = turned.pieces
    if turned.kept or not pieces or not isinstance(last := pieces[-1], str) or _SENTENCE_END.search(part.text.rstrip()):
        return pieces
    return (*pieces[:-1], re.sub(r"[.。](\s*)$", r"\1", last))


def _notes(
    core: Segment, wording: MaskedSentence, reply: SentenceTranslation, checked: CheckResult, composed: ComposedTranslation
) -> list[SegmentFinding]:
    notes = []
    for index in sorted(checked.failed):
        thing = wording.said[index].thing
        if thing.term:
            message = f"{thing.term.source!r} is not translated as {thing.term.target!r}: {_short(shown(composed.pieces))}"
            notes.append(SegmentFinding(FindingKind.GLOSSARY, Severity.WARNING, message))
        else:
            notes.append(
                SegmentFinding(
                    FindingKind.PLACEHOLDER, Severity.WARNING, f"{_short(shown(thing.pieces))} is not in the translation"
                )
            )
    for text in dict.fromkeys(checked.invented):
        notes.append(SegmentFinding(FindingKind.PLACEHOLDER, Severity.WARNING, f"{_short(text)} is in the translation alone"))
    if not composed.sure:
        notes.append(SegmentFinding(FindingKind.TAG, Severity.WARNING, f"tags are placed by proportion: {_short(core.text)}"))
    if reply.truncated:
        notes.append(
            SegmentFinding(
                FindingKind.TRUNCATED, Severity.WARNING, f"the translation ran into its length limit: {_short(core.text)}"
            )
        )
    return notes


def _short(text: str, longest: int = 60) -> str:
    return repr(text if len(text) <= longest else text[: longest - 1] + "…")
