"""Translate texts that the model does not take as a whole, as `triptych translate-docs` does: by parts of their sentences."""

from collections.abc import Callable, Sequence

from triptych_cli.translation.backend import Backend, Candidate, TextTranslation
from triptych_documents.driver import DocumentDriver
from triptych_documents.findings import FindingKind, Severity
from triptych_documents.rules import Term, TranslationRules
from triptych_documents.sentences import Alignment, Refusal, SentenceRequest, SentenceResult, SentenceTranslation
from triptych_documents.translation.units import TranslatedUnit, UnitTranslator
from triptych_documents.unit import Unit, raw_text
from triptych_embedded.request import InputError, TranslationRequest
from triptych_embedded.sentences import sentence_options


def translate_in_parts(
    backend: Backend,
    texts: Sequence[str],
    request: TranslationRequest,
    glossary: Sequence[Term] = (),
    warn: Callable[[int, str], None] = lambda _index, _problem: None,
) -> list[TextTranslation | InputError]:
    """Translate texts. One with a part that cannot be translated has an InputError.

    Args:
        glossary: terms with their translations.
        warn: called with the index of a text and what is wrong with its translation, such as a missing term.
    """
    source, target = request.source_language, request.target_language
    rules = TranslationRules(source_language=source, target_language=target, glossary=tuple(glossary))
    units = ((index, Unit((text,), "", keeps_space=True)) for index, text in enumerate(texts))
    driver = DocumentDriver(UnitTranslator(rules), units, window=backend.batch)
    found: dict[object, TextTranslation | InputError] = {}
    results: list[tuple[SentenceRequest, SentenceResult]] = []
    while not driver.is_finished:
        for unit in driver.advance(results):
            found[unit.key] = _result(unit)
            assert isinstance(unit.key, int), "the key of a unit is its index"
            for finding in unit.findings:
                if finding.kind in (FindingKind.GLOSSARY, FindingKind.PLACEHOLDER):
                    warn(unit.key, finding.message)
        requests = driver.take()
        results = [pair for aligned in (False, True) for pair in _ask(backend, request, requests, aligned)]
    return [found[index] for index in range(len(texts))]


def _ask(
    backend: Backend, request: TranslationRequest, requests: Sequence[SentenceRequest], aligned: bool
) -> list[tuple[SentenceRequest, SentenceResult]]:
    some = [each for each in requests if each.aligned == aligned]
    outcomes = (
        backend.translate([each.text for each in some], sentence_options(request.decoding, some, aligned)) if some else []
    )
    return [(each, _sentence(outcome)) for each, outcome in zip(some, outcomes, strict=True)]


def _sentence(outcome: TextTranslation | InputError) -> SentenceResult:
    if isinstance(outcome, InputError):
        return Refusal(str(outcome))
    best = outcome.candidates[0]
    alignment = Alignment(outcome.source_spans, best.spans, best.alignment) if best.alignment else None
    return SentenceTranslation(best.text, alignment, outcome.truncated)


def _result(unit: TranslatedUnit) -> TextTranslation | InputError:
    errors = [finding.message for finding in unit.findings if finding.severity is Severity.ERROR]
    if errors:
        return InputError(0, errors[0])
    truncated = any(finding.kind is FindingKind.TRUNCATED for finding in unit.findings)
    return TextTranslation([Candidate(raw_text(unit.pieces), "length" if truncated else "stop", 0)], 0)
