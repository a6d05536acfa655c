"""Findings about the languages that a document with sources and translations declares."""

from collections.abc import Iterator

from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_text.languages import languages_differ


def check_source(declared: str, given: str, where: str) -> Iterator[Finding]:
    """Yield a finding if the document declares its source to be in another language than given."""
    if languages_differ(declared, given):
        yield _finding(where, f"declares its source to be in {declared}, not in {given}")


def foreign_translations(declared: str, wanted: str, where: str, name: str = "translations") -> Finding:
    """Return the finding that existing translations are in another language, so that new ones would mix languages."""
    return _finding(where, f"{name} are in {declared}, not in {wanted}; nothing was translated")


def source_is_target(declared: str, where: str) -> Finding:
    """Return the finding that a document is in the target language already."""
    return _finding(where, f"its source is in {declared}, the target language; nothing was translated")


def _finding(where: str, problem: str) -> Finding:
    return Finding(FindingKind.FORMAT, Severity.WARNING, where, problem)
