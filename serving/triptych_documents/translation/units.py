"""Translation of units: which sentences to request, and the pieces that come of the results.

Most units are one sentence with neither tags nor protected text; these need neither segments nor generators. `ResultCache`
avoids repeated requests.
"""

import unicodedata
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from triptych_documents.encoding import surrogate
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.rules import TranslationRules
from triptych_documents.segments.cutting import END, split_sentences
from triptych_documents.segments.markup import read_segment
from triptych_documents.segments.protected import ProtectedFinder
from triptych_documents.segments.segment import Segment, has_letters, shown
from triptych_documents.sentences import (
    HumanLookup,
    Refusal,
    SentencePair,
    SentenceRequest,
    SentenceResult,
    SentenceTranslation,
)
from triptych_documents.translation.translator import SegmentTranslator, Steps, TranslatedSegment, clean, fault, together
from triptych_documents.translation.wrapped_lines import WrappedLines
from triptych_documents.unit import Piece, Unit, joined
from triptych_text.sentences import Splitter, needs_space

_ENTRY = 300  # bytes of an entry besides its texts
_WEIGHT = 32  # bytes of a number in a list


class ResultCache:
    """Least-recently-used cache of results of about `room` bytes. Not thread-safe."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._taken = 0
        self._replies: OrderedDict[SentenceRequest, SentenceResult] = OrderedDict()

    def get(self, request: SentenceRequest) -> SentenceResult | None:
        reply = self._replies.get(request)
        if reply is not None:
            self._replies.move_to_end(request)
        return reply

    def put(self, request: SentenceRequest, reply: SentenceResult) -> None:
        self._replies[request] = reply
        self._taken += _size(request, reply)
        while self._taken > self._room:
            self._taken -= _size(*self._replies.popitem(last=False))


def _size(request: SentenceRequest, reply: SentenceResult) -> int:
    size = _ENTRY + 2 * len(request.text)
    if isinstance(reply, SentenceTranslation):
        size += 2 * len(reply.text)
        if reply.alignment is not None:
            size += _WEIGHT * len(reply.alignment.source) * (len(reply.alignment.target) + 1)
    return size


def _is_tidy(text: str) -> bool:
    """Return whether all white space is single spaces between words and the text is in NFC."""
    if not text.isprintable() or "  " in text or text[0] == " " or text[-1] == " ":
        return False
    return text.isascii() or unicodedata.is_normalized("NFC", text)


REMEMBERED_BYTES = 128 << 20  # size of the result cache; evicted requests are issued again


@dataclass(frozen=True, slots=True)
class TranslatedUnit:
    """A unit and its translation."""

    key: Hashable
    unit: Unit
    pieces: tuple[Piece, ...]  # for Document.render
    pairs: tuple[SentencePair, ...]
    findings: tuple[Finding, ...]


@dataclass(slots=True)
class _PendingUnit:
    """A unit in progress: its last requests and their results so far."""

    key: Hashable
    unit: Unit
    steps: Steps[TranslatedUnit]
    requests: Sequence[SentenceRequest] = ()
    replies: dict[SentenceRequest, SentenceResult] | None = None
    missing: int = 0


_Waiting = _PendingUnit | tuple[Hashable, Unit, str]  # a simple unit needs no more than its text


class UnitTranslator:
    """Translate units given their sentences' translations. Not thread-safe.

    `add` a unit, translate the requests that come of it in any order, and pass each result to `answer`, which may return
    further requests. `done` returns the finished units. Equal requests are issued once; results are cached.

    Args:
        people: looks up human translations, which take precedence: of whole units without codes, then of their sentences.

    Raises:
        OptionError: a pattern of the rules is not a valid regular expression.
    """

    def __init__(self, rules: TranslationRules, people: HumanLookup | None = None) -> None:
        self._people = people
        self._finder = ProtectedFinder(rules)
        self._splitter = Splitter(rules.source_language, lambda sentence: len(sentence) <= rules.max_characters)
        languages = rules.source_language, rules.target_language
        self._translator = SegmentTranslator(self._finder, languages, rules.max_characters)
        self._longest = rules.max_characters
        self._answers = ResultCache(REMEMBERED_BYTES)
        self._under_way: dict[SentenceRequest, list[_Waiting]] = {}
        self.waiting = 0  # number of unfinished units
        self._done: list[TranslatedUnit] = []

    def add(self, key: Hashable, unit: Unit) -> list[SentenceRequest]:
        """Add a unit and return new requests; none if it has no words or the same requests are pending."""
        if self._people and (plain := unit.plain) is not None and (human := self._people(plain)) is not None:
            self._done.append(TranslatedUnit(key, unit, (human,), (SentencePair(plain, human),), ()))
            return []
        self.waiting += 1
        if (text := self._simple_text(unit)) is None:
            return self._go_on([self._task(key, unit)])
        request = SentenceRequest(text)
        if (known := self._answers.get(request)) is not None:
            return [] if self._shorten(key, unit, text, known) else self._go_on([self._task(key, unit)])
        return [request] if self._wait(request, (key, unit, text)) else []

    def answer(self, request: SentenceRequest, answer: SentenceTranslation | Refusal) -> list[SentenceRequest]:
        """Record a result and return the requests that follow from it."""
        self._answers.put(request, answer)
        ready = []
        for task in self._under_way.pop(request, ()):
            if isinstance(task, tuple):
                if not self._shorten(*task, answer):
                    ready.append(self._task(*task[:2]))
                continue
            assert task.replies is not None
            task.replies[request] = answer
            task.missing -= 1
            if not task.missing:
                ready.append(task)
        return self._go_on(ready) if ready else []

    def done(self) -> Sequence[TranslatedUnit]:
        """Return the units that were finished since the last call."""
        done, self._done = self._done, []
        return done

    def _simple_text(self, unit: Unit) -> str | None:
        """Return the text of a unit that needs neither segments nor generators; None if the unit is not that simple."""
        if (text := unit.plain) is None or len(text) > self._longest or not has_letters(text):
            return None
        is_simple = _is_tidy(text) and not (END.search(text) or self._splitter.has_mark(text) or self._finder.may_have(text))
        return text if is_simple else None

    def _shorten(self, key: Hashable, unit: Unit, source: str, reply: SentenceResult) -> bool:
        """Finish a simple unit; return False if it needs the general way, which starts with the same request."""
        if not isinstance(reply, SentenceTranslation) or reply.truncated:
            return False
        text = clean(reply.text)
        if self._finder.hints_at(text) or fault(source, text, truncated=False):
            return False
        pieces = (text,) if text != source else unit.pieces
        self.waiting -= 1
        self._done.append(TranslatedUnit(key, unit, pieces, (SentencePair(source, " ".join(text.split())),), ()))
        return True

    def _task(self, key: Hashable, unit: Unit) -> _PendingUnit:
        return _PendingUnit(key, unit, self._translate(key, unit))

    def _wait(self, request: SentenceRequest, task: _Waiting) -> bool:
        """Register a waiting unit; return whether the request is new."""
        if (others := self._under_way.get(request)) is not None:
            others.append(task)
            return False
        self._under_way[request] = [task]
        return True

    def _go_on(self, ready: list[_PendingUnit]) -> list[SentenceRequest]:
        """Advance tasks whose requests all have results; new tasks have none yet."""
        requests: list[SentenceRequest] = []
        for task in ready:
            while not task.missing:
                try:
                    self._resume(task, requests)
                except StopIteration as end:
                    self.waiting -= 1
                    self._done.append(end.value)
                    break
        return requests

    def _resume(self, task: _PendingUnit, requests: list[SentenceRequest]) -> None:
        if task.replies is None:
            task.requests = next(task.steps)
        else:
            task.requests = task.steps.send([task.replies[request] for request in task.requests])
        task.replies = {}
        for request in dict.fromkeys(task.requests):
            if (known := self._answers.get(request)) is not None:
                task.replies[request] = known
                continue
            task.missing += 1
            if self._wait(request, task):
                requests.append(request)

    def _translate(self, key: Hashable, unit: Unit) -> Steps[TranslatedUnit]:
        if half := surrogate("".join(piece if isinstance(piece, str) else piece.shown for piece in unit.pieces)):
            message = f"the text has half a surrogate pair, U+{ord(half):04X}; not translated"
            refusal = Finding(FindingKind.REFUSED, Severity.ERROR, unit.where, message)
            return TranslatedUnit(key, unit, unit.pieces, (), (refusal,))
        normal = joined([unicodedata.normalize("NFC", piece) if isinstance(piece, str) else piece for piece in unit.pieces])
        lines = WrappedLines(normal) if unit.keeps_space and "\n" in unit.text.strip() else None
        segment = read_segment(lines.pieces if lines else normal, self._finder)
        parts = split_sentences(segment, self._splitter, keeps_space=unit.keeps_space)
        translated = yield from together([self._translator.translate(part, self._people) for part in parts])
        pieces = joined(list(_spaced(parts, translated)))
        if lines:
            pieces = lines.written(pieces)
        findings = [replace(note, where=unit.where) for one in translated for note in one.notes]
        if normal != joined(unit.pieces):
            message = "the text is not in Unicode normalization form NFC; its NFC form was translated"
            findings.insert(0, Finding(FindingKind.NORMALIZED, Severity.NOTE, unit.where, message))
        if pieces == normal:
            pieces = unit.pieces
        pairs = [(shown(part.pieces), shown(one.pieces)) for part, one in zip(parts, translated, strict=True) if not one.kept]
        plain = tuple(SentencePair(" ".join(source.split()), " ".join(target.split())) for source, target in pairs)
        return TranslatedUnit(key, unit, pieces, plain, tuple(dict.fromkeys(findings)))


def _spaced(parts: Sequence[Segment], translated: Sequence[TranslatedSegment]) -> Iterator[Piece]:
    """Yield all pieces, with spaces between sentences whose originals need none."""
    for part, one, after in zip_longest(parts, translated, parts[1:]):
        yield from one.pieces
        if after and after.text[:1].strip() and needs_space(part.text, shown(one.pieces)):
            yield " "
