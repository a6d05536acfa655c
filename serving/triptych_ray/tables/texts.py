"""Texts through documents' rules and a translator: each text is a document of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from triptych_documents.driver import DocumentDriver
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.format import Document, Format, ReadOptions
from triptych_documents.rules import TranslationRules
from triptych_documents.sentences import SentenceRequest
from triptych_documents.translation.units import TranslatedUnit, UnitTranslator
from triptych_documents.unit import Piece
from triptych_embedded.request import BackendError
from triptych_embedded.translating import Outcome, Translating
from triptych_ray.tables.problems import problem_of

PATIENCE_SECONDS = 1.0


@dataclass(frozen=True)
class Translated:
    """What became of one text."""

    text: str | None
    findings: tuple[Finding, ...] = ()


def translate_texts(
    texts: Sequence[str | None], format: Format, rules: TranslationRules, translating: Translating
) -> list[Translated]:
    """Order is kept; what is None, or has nothing to translate, stays.

    Args:
        texts: each a document of `format`.
        format: reads and writes them.
        rules: for all of them.
        translating: translates sentences; entered.

    Raises:
        BackendError: the translator gave up. A text that is no such document is a finding.
    """
    documents = [_read(text, format, rules) for text in texts]
    done = _work(documents, rules, translating)
    return [
        _render(text, document, done.get(index, {}))
        for index, (text, document) in enumerate(zip(texts, documents, strict=True))
    ]


def _read(text: str | None, format: Format, rules: TranslationRules) -> Document | Finding | None:
    if text is None:
        return None
    options = ReadOptions(source_language=rules.source_language, target_language=rules.target_language, encoding="utf-8")
    try:
        return format.read(text.encode(), options)
    except Exception as error:  # of the format too: it costs this text alone
        return _fault(error)


def _work(
    documents: Sequence[Document | Finding | None], rules: TranslationRules, translating: Translating
) -> dict[int, dict[int, TranslatedUnit]]:
    units = (
        ((index, number), unit)
        for index, document in enumerate(documents)
        if document is not None and not isinstance(document, Finding)
        for number, unit in enumerate(document.units)
    )
    driver = DocumentDriver(UnitTranslator(rules), units, window=translating.window, refill=0.25)
    line = _Line(translating)
    results: Sequence[Outcome] = ()
    found: dict[int, dict[int, TranslatedUnit]] = {}
    try:
        while not driver.is_finished:
            for done in driver.advance(results):
                index, number = cast(tuple[int, int], done.key)
                found.setdefault(index, {})[number] = done
            requests = driver.take()
            results = line.ask(requests) if requests or line.under_way else ()
    except Exception:
        line.drain()
        raise
    return found


def _render(text: str | None, document: Document | Finding | None, units: dict[int, TranslatedUnit]) -> Translated:
    if document is None or isinstance(document, Finding):
        return Translated(text, () if document is None else (document,))
    pieces: dict[int, Sequence[Piece]] = {number: done.pieces for number, done in units.items()}
    try:
        rendered = document.render(pieces).decode()
    except Exception as error:  # as above
        return Translated(text, (_fault(error),))
    return Translated(rendered, (*document.findings, *(finding for done in units.values() for finding in done.findings)))


def _fault(error: Exception) -> Finding:
    return Finding(FindingKind.FORMAT, Severity.ERROR, "", problem_of(error))


class _Line:
    """To a translator, who is asked further things when these are done with."""

    def __init__(self, translating: Translating) -> None:
        self._translating = translating
        self.under_way = 0

    def ask(self, asks: Sequence[SentenceRequest]) -> Sequence[Outcome]:
        """Outcomes of these or earlier ones. Raises BackendError."""
        try:
            self._translating.submit(asks)
            self.under_way += len(asks)
            outcomes = self._translating.take(PATIENCE_SECONDS)
        except BackendError:
            self.under_way = 0
            raise
        except Exception as error:  # which asks it still has is not known
            self.under_way = 0
            raise BackendError(problem_of(error)) from error
        self.under_way -= len(outcomes)
        return outcomes

    def drain(self) -> None:
        """Nothing of this is left for who comes next."""
        while self.under_way:
            self.ask(())
