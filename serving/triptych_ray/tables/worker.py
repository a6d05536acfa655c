"""A worker: an engine on one device of the cluster that translates chunks. Each text of a chunk is a document of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from triptych_documents.driver import DocumentDriver
from triptych_documents.errors import DocumentError
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.format import Document, FormatInfo, ReadOptions, find_format
from triptych_documents.rules import TranslationRules
from triptych_documents.sentences import SentenceRequest
from triptych_documents.translation.units import TranslatedUnit, UnitTranslator
from triptych_embedded.engine import open_sentence_translator
from triptych_embedded.request import BackendError
from triptych_embedded.sentences import SentenceOutcome, SentenceTranslator
from triptych_ray.tables.files import Chunk, table_format
from triptych_ray.tables.options import TableOptions
from triptych_ray.tables.parts import FileParts

PATIENCE_SECONDS = 1.0


class Worker:
    """Loads the model once; Ray Data calls it with chunks.

    Raises:
        BackendError: the model cannot be loaded, or differs from that of the job.
    """

    def __init__(self, options: TableOptions, cpus: int) -> None:
        self._options = options
        self._format = find_format(name=options.format)
        self._opened = open_sentence_translator(options.request, cpus)  # open for the lifetime of the process
        self._translator = self._opened.__enter__()
        identity = self._translator.identity
        if options.identity not in (None, identity):
            raise BackendError(f"the model here is {identity.text}, where the job was started it is {options.identity.text}")
        source, target = identity.source_language, identity.target_language
        self._rules = replace(options.rules, source_language=source, target_language=target)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Translate chunks; the result has one row with the report of each chunk.

        Raises:
            BackendError: the engine has stopped.
        """
        columns = (batch[name] for name in ("path", "number", "start", "rows"))
        chunks = [Chunk(str(path), *map(int, numbers)) for path, *numbers in zip(*columns, strict=True)]
        reports = [json.dumps(self._translate(chunk)) for chunk in chunks]
        return {"path": np.array([chunk.path for chunk in chunks]), "report": np.array(reports)}

    def _translate(self, chunk: Chunk) -> dict[str, Any]:
        """Translate a chunk. Errors cost its file alone, unless the engine itself fails."""
        try:
            return {"number": chunk.number, "rows": self._write(chunk)}
        except BackendError:
            raise
        except DocumentError as error:  # it names the place
            return {"number": chunk.number, "error": str(error)}
        except Exception as error:
            return {"number": chunk.number, "error": f"{chunk.path}: chunk {chunk.number}: {problem_of(error)}"}

    def _write(self, chunk: Chunk) -> int:
        """Write the part of a chunk and return its number of rows."""
        parts = FileParts(self._options, chunk.path)
        rows = table_format(parts.source).read(chunk, self._options)
        found = translate_texts(rows.texts, self._format, self._rules, self._translator)
        parts.write(chunk.number, lambda stream: rows.write([one.text for one in found], stream), _findings(chunk, found))
        return len(found)


def _findings(chunk: Chunk, found: list[TranslatedText]) -> list[dict[str, Any]]:
    return [
        {"chunk": chunk.number, "row": row, **finding.values()} for row, one in enumerate(found) for finding in one.findings
    ]


@dataclass(frozen=True)
class TranslatedText:
    """The result of one text."""

    text: str | None
    findings: tuple[Finding, ...] = ()


def translate_texts(
    texts: Sequence[str | None], format: FormatInfo, rules: TranslationRules, translator: SentenceTranslator
) -> list[TranslatedText]:
    """Translate texts and keep their order. None, and texts with nothing to translate, stay as they are.

    Args:
        texts: each a document of `format`.

    Raises:
        BackendError: the translator failed. A text that is not a document of the format is a finding.
    """
    documents = [_read(text, format, rules) for text in texts]
    units = _translate(documents, rules, translator)
    return [
        _render(text, document, units.get(index, {}))
        for index, (text, document) in enumerate(zip(texts, documents, strict=True))
    ]


def problem_of(error: Exception) -> str:
    """Describe an error in one line; unexpected ones with their type."""
    message = " ".join(str(error).split())
    return message if isinstance(error, DocumentError | OSError) and message else f"{type(error).__name__}: {message}"


def _read(text: str | None, format: FormatInfo, rules: TranslationRules) -> Document | Finding | None:
    if text is None:
        return None
    options = ReadOptions(source_language=rules.source_language, target_language=rules.target_language, encoding="utf-8")
    try:
        return format.read(text.encode(), options)
    except ImportError:  # the node lacks a package
        raise
    except Exception as error:  # a bug in the format too costs this text alone
        return _fault(error)


def _translate(
    documents: Sequence[Document | Finding | None], rules: TranslationRules, translator: SentenceTranslator
) -> dict[int, dict[int, TranslatedUnit]]:
    """Return the translated units by index of the document and of the unit."""
    units = (
        ((index, number), unit)
        for index, document in enumerate(documents)
        if document is not None and not isinstance(document, Finding)
        for number, unit in enumerate(document.units)
    )
    driver = DocumentDriver(UnitTranslator(rules), units, window=translator.window)
    in_flight = 0
    results: Sequence[SentenceOutcome] = ()
    found: dict[int, dict[int, TranslatedUnit]] = {}
    try:
        while not driver.is_finished:
            for translated in driver.advance(results):
                index, number = cast(tuple[int, int], translated.key)
                found.setdefault(index, {})[number] = translated
            requests = driver.take()
            in_flight += len(requests)
            results = _exchange(translator, requests, 0.0 if driver.can_read or not in_flight else PATIENCE_SECONDS)
            in_flight -= len(results)
    except BackendError:
        raise
    except Exception:
        while in_flight:  # leave nothing for the next chunk
            in_flight -= len(_exchange(translator, (), PATIENCE_SECONDS))
        raise
    return found


def _exchange(
    translator: SentenceTranslator, requests: Sequence[SentenceRequest], patience_seconds: float
) -> Sequence[SentenceOutcome]:
    """Submit requests and take outcomes. After an error the translator must not be used: its pending requests are unknown."""
    try:
        translator.submit(requests)
        return translator.take(patience_seconds)
    except BackendError:
        raise
    except Exception as error:
        raise BackendError(problem_of(error)) from error


def _render(text: str | None, document: Document | Finding | None, units: dict[int, TranslatedUnit]) -> TranslatedText:
    if document is None or isinstance(document, Finding):
        return TranslatedText(text, () if document is None else (document,))
    try:
        rendered = document.render({number: unit.pieces for number, unit in units.items()}).decode()
    except Exception as error:  # as above
        return TranslatedText(text, (_fault(error),))
    findings = (finding for unit in units.values() for finding in unit.findings)
    return TranslatedText(rendered, (*document.findings, *findings))


def _fault(error: Exception) -> Finding:
    return Finding(FindingKind.FORMAT, Severity.ERROR, "", problem_of(error))
