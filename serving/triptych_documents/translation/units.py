"""Units on their way through a translator.

Whoever has a translator drives it: `add` units, have the asks answered in any order, `answer` them, take what is `done`.
"""

import unicodedata
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from triptych_documents.encoding import surrogate
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.rules import TranslationRules
from triptych_documents.segments.cutting import split_sentences
from triptych_documents.segments.markup import read_segment
from triptych_documents.segments.protected import ProtectedFinder
from triptych_documents.segments.segment import Segment, shown
from triptych_documents.sentences import Refusal, SentencePair, SentenceRequest, SentenceTranslation
from triptych_documents.translation.cache import ResultCache
from triptych_documents.translation.shortcut import PlainTextShortcut
from triptych_documents.translation.steps import SentenceResult, Steps, together
from triptych_documents.translation.translator import SegmentTranslator, TranslatedSegment
from triptych_documents.unit import Code, Piece, Unit, joined
from triptych_text.sentences import Splitter

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
