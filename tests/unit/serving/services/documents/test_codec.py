"""Document requests from the wire, findings and errors to the wire."""

from typing import Any

import pytest

from triptych.v1 import translation_pb2
from triptych_documents.errors import DamagedDocumentError, OptionError
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.rules import Term
from triptych_serving.errors import InvalidInputError
from triptych_serving.services.documents.calls import shortened
from triptych_serving.services.documents.codec import MAX_KEYS, MAX_SHOWN, finding_to, query_from, texts_query_from
from triptych_serving.services.documents.work import document_error

Config = translation_pb2.DocumentConfig
Options = translation_pb2.DecodingOptions
Reading = translation_pb2.DocumentReadOptions
TermMessage = translation_pb2.GlossaryTerm


def rejected(**members: Any) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as error:
        query_from(Config(**{"format": "text", **members}))
    return error.value


def test_config() -> None:
    config = Config(
        format="csv",
        source_language_code="deu_Latn",
        target_language_code="pt_BR",
        model="toy",
        model_version="2",
        options=Options(beam_size=4),
        read_options=Reading(
            encoding="latin-1", columns=["a", "2"], header=False, keys=["*.b"], skip_keys=["c"], wrapped=True, mark_fuzzy=True
        ),
        glossary=[TermMessage(source="Haus", target="house")],
        keep=["Triptych"],
    )
    query = query_from(config)
    assert (query.format.name, query.selector.model, query.selector.version) == ("csv", "toy", "2")
    assert (query.selector.source_language, query.selector.target_language) == ("deu_Latn", "pt_BR")
    assert query.options.beam_size == 4
    reading = query.read_options(("de", "pt-BR"))
    assert (reading.source_language, reading.target_language) == ("de", "pt-BR")
    assert (reading.encoding, reading.columns, reading.keys, reading.skip_keys) == ("latin-1", ("a", "2"), ("*.b",), ("c",))
    assert (reading.header, reading.wrapped, reading.retranslate, reading.mark_fuzzy) == (False, True, False, True)
    rules = query.rules(("de", "pt-BR"))
    assert (rules.glossary, rules.keep, rules.source_language) == ((Term("Haus", "house"),), ("Triptych",), "de")


def test_missing_read_options() -> None:
    reading = query_from(Config(format="text")).reading
    assert (reading.header, reading.wrapped, reading.encoding, reading.source_language) == (None, None, "", "")


@pytest.mark.parametrize(
    ("members", "name"),
    [
        ({"file_name": "a/b/Report.DOCX"}, "docx"),
        ({"mime_type": "text/html; charset=utf-8", "file_name": "a.txt"}, "html"),
        ({"format": "po", "mime_type": "text/html", "file_name": "a.txt"}, "po"),
    ],
)
def test_format(members: dict[str, str], name: str) -> None:
    assert query_from(Config(**members)).format.name == name


@pytest.mark.parametrize(
    ("members", "field", "problem"),
    [
        ({"format": ""}, "config.file_name", "set one of them"),
        ({"format": "doc"}, "config.format", "format 'doc' is not"),
        ({"format": "", "mime_type": "image/png"}, "config.mime_type", "image/png"),
        ({"format": "", "file_name": "a.exe"}, "config.file_name", "a.exe"),
        ({"source_language_code": "?"}, "config.source_language_code", "not a language code"),
        ({"target_language_code": "?"}, "config.target_language_code", "not a language code"),
        ({"options": Options(num_hypotheses=2)}, "config.options.num_hypotheses", "has no effect"),
        ({"options": Options(target_prefix=["a"])}, "config.options.target_prefix", "has no effect"),
        ({"options": Options(return_alignment=True)}, "config.options.return_alignment", "has no effect"),
        ({"options": Options(split_sentences=2)}, "config.options.split_sentences", "has no effect"),
        (
            {"glossary": [TermMessage(source="a", target="b"), TermMessage(source=" ", target="b")]},
            "config.glossary[1].source",
            "",
        ),
        ({"glossary": [TermMessage(source="a")]}, "config.glossary[0].target", "empty"),
        ({"keep": ["a", ""]}, "config.keep[1]", "empty"),
        ({"read_options": Reading(columns=["1"] * 1_001)}, "config.read_options.columns", "1,001 columns, at most 1,000"),
        ({"read_options": Reading(keys=["a"] * (MAX_KEYS + 1))}, "config.read_options.keys", "201 patterns, at most 200"),
        ({"read_options": Reading(skip_keys=["**.a"] * 101)}, "config.read_options.skip_keys", "202 times *, at most 200"),
        ({"read_options": Reading(keys=["a", "b" * 1_001])}, "config.read_options.keys[1]", "1,001 characters, at most 1,000"),
        ({"keep": ["a" * 1_001]}, "config.keep[0]", "1,001 characters, at most 1,000"),
    ],
)
def test_invalid_field_is_named(members: dict[str, Any], field: str, problem: str) -> None:
    error = rejected(**members)
    assert error.field == field
    assert problem in error.problem


def test_options_without_effect_are_accepted() -> None:
    options = Options(num_hypotheses=1, return_scores=False, return_alignment=False, split_sentences=0)
    assert query_from(Config(format="text", options=options)).options.num_hypotheses == 1


@pytest.mark.parametrize(
    ("error", "field", "problem"),
    [
        (DamagedDocumentError("no zip file", "member 3"), "document", "member 3: no zip file"),
        (OptionError("columns", "no 7"), "config.read_options.columns", "no 7"),
    ],
)
def test_document_errors_name_the_field(error: Any, field: str, problem: str) -> None:
    found = document_error(error)
    assert (found.field, found.problem) == (field, problem)


@pytest.mark.parametrize(
    ("kind", "severity"), [*((kind, Severity.NOTE) for kind in FindingKind), *((FindingKind.TAG, one) for one in Severity)]
)
def test_findings(kind: FindingKind, severity: Severity) -> None:
    message = finding_to(Finding(kind, severity, "a\ud83d", "a" * 2 * MAX_SHOWN))
    assert translation_pb2.FindingKind.Name(message.kind) == f"FINDING_KIND_{kind.name}"
    assert translation_pb2.FindingSeverity.Name(message.severity) == f"FINDING_SEVERITY_{severity.name}"
    assert (message.where, len(message.message)) == ("a?", MAX_SHOWN + 3)  # half a surrogate pair cannot be sent


def test_texts_have_a_limited_glossary() -> None:
    glossary = [TermMessage(source="a", target="b")] * 10_000
    request = translation_pb2.TranslateRequest(mime_type="text/html", glossary=glossary)
    assert (texts_query_from(request).format.name, len(texts_query_from(request).glossary)) == ("html", 10_000)
    request.glossary.append(glossary[0])
    with pytest.raises(InvalidInputError, match=r"^glossary: 10,001 terms, at most 10,000 are allowed$"):
        texts_query_from(request)


def test_many_findings_are_counted() -> None:
    finding = Finding(FindingKind.GLOSSARY, Severity.WARNING, "line 1", "no term")
    few = [(0, finding)] * 1_000
    assert shortened(few) == few
    *first, (number, last) = shortened([*few, (3, finding), (4, finding)])
    assert (first, number, last.message) == (few, 3, "2 more findings")
