"""Answers that are remembered, up to a size."""

import re
import unicodedata
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from triptych_documents.encoding import surrogate
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.rules import TranslationRules
from triptych_documents.segments.cutting import END, split_sentences
from triptych_documents.segments.markup import read_segment
from triptych_documents.segments.protected import ProtectedFinder
from triptych_documents.segments.segment import Segment, has_letters, shown
from triptych_documents.sentences import Refusal, SentencePair, SentenceRequest, SentenceTranslation
from triptych_documents.translation.translator import (
    SegmentTranslator,
    SentenceResult,
    Steps,
    TranslatedSegment,
    clean,
    together,
)
from triptych_documents.unit import Code, Piece, Unit, joined
from triptych_text.sentences import Splitter

_ENTRY = 300  # bytes that an entry takes beside its texts
_WEIGHT = 32  # bytes of a number in a list


class ResultCache:
    """The least recently used are forgotten first. Of one thread.

    Args:
        room: bytes, about.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._taken = 0
        self._replies: OrderedDict[SentenceRequest, SentenceResult] = OrderedDict()

    def get(self, ask: SentenceRequest) -> SentenceResult | None:
        """None where it is not known, or not any more."""
        reply = self._replies.get(ask)
        if reply is not None:
            self._replies.move_to_end(ask)
        return reply

    def put(self, ask: SentenceRequest, reply: SentenceResult) -> None:
        """Remember it."""
        if ask in self._replies:
            return
        self._replies[ask] = reply
        self._taken += _size(ask, reply)
        while self._taken > self._room:
            self._taken -= _size(*self._replies.popitem(last=False))


def _size(ask: SentenceRequest, reply: SentenceResult) -> int:
    size = _ENTRY + 2 * len(ask.text)
    if isinstance(reply, SentenceTranslation):
        size += 2 * len(reply.text)
        if reply.alignment is not None:
            size += _WEIGHT * len(reply.alignment.source) * (len(reply.alignment.target) + 1)
    return size


_END = re.compile(END)


class PlainTextShortcut:
    """From a unit to what is asked, and from the answer to its translation.

    Args:
        finder: knows what must be kept.
        longest: characters of an ask.
    """

    def __init__(self, finder: ProtectedFinder, longest: int) -> None:
        self._finder = finder
        self._longest = longest

    def ask_for(self, unit: Unit) -> str | None:
        """What the translator reads, which is all of the unit; None where steps are needed."""
        if (text := unit.plain) is None or len(text) > self._longest or not has_letters(text):
            return None
        if not _is_tidy(text) or _END.search(text) or self._finder.may_have(text):
            return None
        return text

    def translation(self, reply: SentenceResult) -> str | None:
        """The unit's text in the other language; None where steps are needed."""
        if not isinstance(reply, SentenceTranslation) or reply.truncated or not any(map(str.isalnum, reply.text)):
            return None
        text = clean(reply.text)
        return None if self._finder.hints_at(text) else text


def _is_tidy(text: str) -> bool:
    """All of its white space is single spaces between words, and it is in Unicode's form NFC."""
    if not text.isprintable() or "  " in text or text[0] == " " or text[-1] == " ":
        return False
    return text.isascii() or unicodedata.is_normalized("NFC", text)


REMEMBERED_BYTES = 128 << 20  # of answers; what is forgotten is asked again


@dataclass(frozen=True, slots=True)
class TranslatedUnit:
    """A unit that is translated."""

    key: Hashable
    unit: Unit
    pieces: tuple[Piece, ...]  # for Document.render
    pairs: tuple[SentencePair, ...]
    findings: tuple[Finding, ...]


@dataclass(slots=True)
class _PendingUnit:
    """A unit under way: what it asked last, and which of these are answered."""

    key: Hashable
    unit: Unit
    steps: Steps[TranslatedUnit]
    asks: Sequence[SentenceRequest] = ()
    replies: dict[SentenceRequest, SentenceResult] | None = None
    missing: int = 0


_Waiting = _PendingUnit | tuple[Hashable, Unit, str]  # of a simple unit no more than its text is needed


class UnitTranslator:
    """Units between `add` and `done`. Of one thread.

    Equal asks are asked once: while one is under way others wait for it, and answers are remembered.

    Args:
        rules: for all units.

    Raises:
        OptionError: a pattern of the rules is no regular expression.
    """

    def __init__(self, rules: TranslationRules) -> None:
        self._finder = ProtectedFinder(rules)
        self._splitter = Splitter(rules.source_language, lambda sentence: len(sentence) <= rules.max_characters)
        languages = rules.source_language, rules.target_language
        self._turner = SegmentTranslator(self._finder, languages, rules.max_characters)
        self._shortcut = PlainTextShortcut(self._finder, rules.max_characters)
        self._answers = ResultCache(REMEMBERED_BYTES)
        self._under_way: dict[SentenceRequest, list[_Waiting]] = {}
        self._waiting = 0
        self._done: list[TranslatedUnit] = []

    @property
    def waiting(self) -> int:
        """Units that are not done."""
        return self._waiting

    def add(self, key: Hashable, unit: Unit) -> list[SentenceRequest]:
        """What must be asked for this unit now; nothing where it has no words or others are asking the same."""
        self._waiting += 1
        if (text := self._shortcut.ask_for(unit)) is None:
            return self._go_on([self._task(key, unit)])
        ask = SentenceRequest(text)
        if (known := self._answers.get(ask)) is not None:
            return [] if self._shorten(key, unit, text, known) else self._go_on([self._task(key, unit)])
        return [ask] if self._wait(ask, (key, unit, text)) else []

    def answer(self, ask: SentenceRequest, answer: SentenceTranslation | Refusal) -> list[SentenceRequest]:
        """What must be asked next, now that this is known."""
        self._answers.put(ask, answer)
        ready = []
        for task in self._under_way.pop(ask, ()):
            if isinstance(task, tuple):
                if not self._shorten(*task, answer):
                    ready.append(self._task(*task[:2]))
                continue
            assert task.replies is not None
            task.replies[ask] = answer
            task.missing -= 1
            if not task.missing:
                ready.append(task)
        return self._go_on(ready) if ready else []

    def done(self) -> Sequence[TranslatedUnit]:
        """The units that have become done since this was called last."""
        done, self._done = self._done, []
        return done

    def _shorten(self, key: Hashable, unit: Unit, source: str, reply: SentenceResult) -> bool:
        """A simple unit is done with this; False: it takes steps, the first of which is to ask the same."""
        if (text := self._shortcut.translation(reply)) is None:
            return False
        pieces = (text,) if text != source else unit.pieces
        self._waiting -= 1
        self._done.append(TranslatedUnit(key, unit, pieces, (SentencePair(source, " ".join(text.split())),), ()))
        return True

    def _task(self, key: Hashable, unit: Unit) -> _PendingUnit:
        return _PendingUnit(key, unit, self._turn(key, unit))

    def _wait(self, ask: SentenceRequest, task: _Waiting) -> bool:
        """For an answer. False where others do."""
        if (others := self._under_way.get(ask)) is not None:
            others.append(task)
            return False
        self._under_way[ask] = [task]
        return True

    def _go_on(self, ready: list[_PendingUnit]) -> list[SentenceRequest]:
        """With tasks whose asks are all answered; new ones have asked nothing yet."""
        asks: list[SentenceRequest] = []
        for task in ready:
            while not task.missing:
                try:
                    self._ask(task, asks)
                except StopIteration as end:
                    self._waiting -= 1
                    self._done.append(end.value)
                    break
        return asks

    def _ask(self, task: _PendingUnit, asks: list[SentenceRequest]) -> None:
        if task.replies is None:
            task.asks = next(task.steps)
        else:
            task.asks = task.steps.send([task.replies[ask] for ask in task.asks])
        task.replies = {}
        for ask in dict.fromkeys(task.asks):
            if (known := self._answers.get(ask)) is not None:
                task.replies[ask] = known
                continue
            task.missing += 1
            if self._wait(ask, task):
                asks.append(ask)

    def _turn(self, key: Hashable, unit: Unit) -> Steps[TranslatedUnit]:
        if half := surrogate("".join(piece if isinstance(piece, str) else piece.shown for piece in unit.pieces)):
            message = f"the text has half a surrogate pair, U+{ord(half):04X}, so it stays as it is"
            return TranslatedUnit(
                key, unit, unit.pieces, (), (Finding(FindingKind.REFUSED, Severity.ERROR, unit.where, message),)
            )
        normal = joined(list(map(_normal, unit.pieces)))
        segment = read_segment(normal, self._finder)
        parts = split_sentences(segment, self._splitter, keeps_space=unit.keeps_space)
        turned = yield from together([self._turner.turn(part) for part in parts])
        pieces = joined([piece for one in turned for piece in one.pieces])
        findings = [Finding(note.kind, note.severity, unit.where, note.message) for one in turned for note in one.notes]
        if normal != joined(unit.pieces):
            message = "the text is not in Unicode's form NFC; it is translated as if it were"
            findings.insert(0, Finding(FindingKind.NORMALIZED, Severity.NOTE, unit.where, message))
        if pieces == normal:
            pieces = unit.pieces
        return TranslatedUnit(key, unit, pieces, tuple(_pairs(parts, turned)), tuple(dict.fromkeys(findings)))


def _normal(piece: Piece) -> Piece:
    if isinstance(piece, Code) or unicodedata.is_normalized("NFC", piece):
        return piece
    return unicodedata.normalize("NFC", piece)


def _pairs(parts: Sequence[Segment], turned: Sequence[TranslatedSegment]) -> Iterator[SentencePair]:
    for part, one in zip(parts, turned, strict=True):
        if not one.kept:
            yield SentencePair(" ".join(part.text.split()), " ".join(shown(one.pieces).split()))
