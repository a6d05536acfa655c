"""Texts through documents' rules and a translator: each text is a document of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from triptych_cli.documents.translating import Translating
from triptych_documents.asking import Ask
from triptych_documents.errors import DocumentError
from triptych_documents.findings import Finding, Kind, Severity
from triptych_documents.format import Document, Format, ReadOptions
from triptych_documents.rules import Rules
from triptych_documents.unit import Piece
from triptych_documents.work import Done, Work

PATIENCE_SECONDS = 1.0


@dataclass(frozen=True)
class Translated:
    """What became of one text."""

    text: str | None
    findings: tuple[Finding, ...] = ()


def translate_texts(texts: Sequence[str | None], format: Format, rules: Rules, translating: Translating) -> list[Translated]:
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


def _read(text: str | None, format: Format, rules: Rules) -> Document | Finding | None:
    if text is None:
        return None
    options = ReadOptions(source_language=rules.source_language, target_language=rules.target_language, encoding="utf-8")
    try:
        return format.read(text.encode(), options)
    except (DocumentError, UnicodeEncodeError) as error:
        return Finding(Kind.FORMAT, Severity.ERROR, "", str(error))


def _work(documents: Sequence[Document | Finding | None], rules: Rules, translating: Translating) -> dict[int, dict[int, Done]]:
    work = Work(rules)
    asks: list[Ask] = []
    for index, document in enumerate(documents):
        if document is not None and not isinstance(document, Finding):
            for number, unit in enumerate(document.units):
                asks += work.add((index, number), unit)
    under_way = 0
    while asks or under_way:
        translating.submit(asks)
        outcomes = translating.take(PATIENCE_SECONDS)
        under_way += len(asks) - len(outcomes)
        asks = [more for ask, outcome in outcomes for more in work.answer(ask, outcome)]
    found: dict[int, dict[int, Done]] = {}
    for done in work.done():
        index, number = cast(tuple[int, int], done.key)
        found.setdefault(index, {})[number] = done
    return found


def _render(text: str | None, document: Document | Finding | None, units: dict[int, Done]) -> Translated:
    if document is None or isinstance(document, Finding):
        return Translated(text, () if document is None else (document,))
    pieces: dict[int, Sequence[Piece]] = {number: done.pieces for number, done in units.items()}
    findings = (*document.findings, *(finding for done in units.values() for finding in done.findings))
    return Translated(document.render(pieces).decode(), findings)
