"""Conversion of document requests from the wire, and of progress and findings to the wire."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from triptych.decoding import DecodingOptions
from triptych.v1 import translation_pb2
from triptych_documents.errors import UnknownFormatError
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.format import FormatInfo, ReadOptions, find_format
from triptych_documents.rules import Term, TranslationRules
from triptych_serving.errors import InvalidInputError
from triptych_serving.repository.registry import ModelSelector
from triptych_serving.rpc.limits import DOCUMENT_ELEMENTS
from triptych_serving.services.v1.codec import PLAIN_TEXT, options_from, translation_selector_from
from triptych_serving.text.languages import SOURCE, TARGET
from triptych_text.languages import is_language

Config = translation_pb2.DocumentConfig
Response = translation_pb2.TranslateDocumentResponse

MAX_TERM = 1_000  # characters; the module `re` keeps the latest patterns, which are made of terms
MAX_COLUMNS = 1_000  # each is searched in the header
MAX_KEYS = 200  # patterns of `keys`, and of `skip_keys`: all are tried on every value
MAX_STARS = 200  # in all patterns
MAX_KEY = 1_000  # characters of one pattern
MAX_SHOWN = 500  # characters of a finding's message and location
# Options that have no effect on a document, with their harmless values: it has its own segments and one translation.
UNUSED = {"num_hypotheses": 1, "target_prefix": (), "return_scores": False, "return_alignment": False, "split_sentences": 0}

HTML = "text/html"
TEXT_FORMATS = {"": "text", PLAIN_TEXT: "text", HTML: "html"}  # of texts, by media type

KINDS = {kind: translation_pb2.FindingKind.Value(f"FINDING_KIND_{kind.name}") for kind in FindingKind}
SEVERITIES = {one: translation_pb2.FindingSeverity.Value(f"FINDING_SEVERITY_{one.name}") for one in Severity}


@dataclass(frozen=True)
class DocumentQuery:
    """A request to translate a document."""

    format: FormatInfo
    selector: ModelSelector
    options: DecodingOptions
    reading: ReadOptions
    glossary: tuple[Term, ...] = ()
    keep: tuple[str, ...] = ()

    def read_options(self, languages: tuple[str, str]) -> ReadOptions:
        """Return the options for reading a document that is translated between these languages."""
        return replace(self.reading, source_language=languages[0], target_language=languages[1])

    def rules(self, languages: tuple[str, str]) -> TranslationRules:
        """Return the rules of a translation between these languages."""
        return TranslationRules(
            source_language=languages[0], target_language=languages[1], glossary=self.glossary, keep=self.keep
        )


def query_from(config: Config) -> DocumentQuery:
    """Convert and check a config. Raises InvalidInputError: a field is invalid, or contradicts another one; names it."""
    for name in (SOURCE, TARGET):
        if (code := getattr(config, name)) and not is_language(code):
            raise InvalidInputError(f"config.{name}", f"{code!r:.100} is not a language code such as de, de-DE or deu_Latn")
    selector = ModelSelector(config.model, config.model_version, config.source_language_code, config.target_language_code)
    return DocumentQuery(_format(config), selector, _options(config), _reading(config), _glossary(config), _keep(config))


def texts_query_from(request: translation_pb2.TranslateRequest) -> DocumentQuery:
    """Convert and check a request whose texts are translated as documents.

    Raises:
        InvalidInputError: a field is invalid; names it, those of a document's config with `config.` before.
    """
    if request.mime_type not in TEXT_FORMATS:
        raise InvalidInputError("mime_type", f"{request.mime_type!r} is not supported, send {PLAIN_TEXT!r} or {HTML!r}")
    if (count := len(request.glossary)) > DOCUMENT_ELEMENTS:
        raise InvalidInputError("glossary", f"{count:,} terms, at most {DOCUMENT_ELEMENTS:,} are allowed")
    kind = find_format(name=TEXT_FORMATS[request.mime_type])
    selector = translation_selector_from(request)
    return DocumentQuery(kind, selector, _options(request), ReadOptions(encoding="utf-8"), _glossary(request))


def config_error(error: InvalidInputError) -> InvalidInputError:
    """Convert an error of a text request, whose fields are in the config of a document."""
    return InvalidInputError(f"config.{error.field}", error.problem)


def progress(done: int, segments: int) -> Response:
    """Return the number of translated segments; there are 0 while the document is read."""
    return Response(progress=translation_pb2.DocumentProgress(segments_done=done, segments=segments))


def finding_to(finding: Finding) -> translation_pb2.DocumentFinding:
    """Convert a finding."""
    return translation_pb2.DocumentFinding(
        kind=KINDS[finding.kind],
        severity=SEVERITIES[finding.severity],
        where=_shorten(finding.where),
        message=_shorten(finding.message),
    )


def _format(config: Config) -> FormatInfo:
    given = next((name for name in ("format", "mime_type", "file_name") if getattr(config, name)), "")
    if not given:
        raise InvalidInputError("config.file_name", "file_name, mime_type and format are all empty: set one of them")
    try:
        return find_format(name=config.format, path=config.file_name, mime_type=config.mime_type)
    except UnknownFormatError as error:
        raise InvalidInputError(f"config.{given}", str(error)) from error


def _options(config: Config | translation_pb2.TranslateRequest) -> DecodingOptions:
    for field, value in config.options.ListFields():
        if field.name in UNUSED and value != UNUSED[field.name]:
            raise InvalidInputError(f"config.options.{field.name}", "has no effect on a document, leave it out")
    try:
        return options_from(config.options)
    except InvalidInputError as error:
        raise config_error(error) from error


def _reading(config: Config) -> ReadOptions:
    message = config.read_options
    if (count := len(message.columns)) > MAX_COLUMNS:
        problem = f"{count:,} columns, at most {MAX_COLUMNS:,} are allowed"
        raise InvalidInputError("config.read_options.columns", problem)
    for name in ("keys", "skip_keys"):
        _check_keys(f"config.read_options.{name}", getattr(message, name))
    return ReadOptions(
        encoding=message.encoding,
        columns=tuple(message.columns),
        header=message.header if message.HasField("header") else None,
        keys=tuple(message.keys),
        skip_keys=tuple(message.skip_keys),
        wrapped=message.wrapped if message.HasField("wrapped") else None,
        retranslate=message.retranslate,
        mark_fuzzy=message.mark_fuzzy,
    )


def _check_keys(field: str, patterns: Sequence[str]) -> None:
    if len(patterns) > MAX_KEYS:
        raise InvalidInputError(field, f"{len(patterns):,} patterns, at most {MAX_KEYS:,} are allowed")
    for index, pattern in enumerate(patterns):
        if len(pattern) > MAX_KEY:
            raise InvalidInputError(f"{field}[{index}]", f"{len(pattern):,} characters, at most {MAX_KEY:,} are allowed")
    if (stars := sum(pattern.count("*") for pattern in patterns)) > MAX_STARS:
        raise InvalidInputError(field, f"{stars:,} times *, at most {MAX_STARS:,} are allowed in all patterns")


def _glossary(config: Config | translation_pb2.TranslateRequest) -> tuple[Term, ...]:
    _check_texts("glossary", [term.source for term in config.glossary], ".source")
    _check_texts("glossary", [term.target for term in config.glossary], ".target")
    return tuple(Term(term.source, term.target) for term in config.glossary)


def _keep(config: Config) -> tuple[str, ...]:
    _check_texts("keep", config.keep)
    return tuple(config.keep)


def _check_texts(field: str, texts: Sequence[str], member: str = "") -> None:
    for index, text in enumerate(texts):
        if not text.strip():
            raise InvalidInputError(f"config.{field}[{index}]{member}", "empty")
        if len(text) > MAX_TERM:
            problem = f"{len(text):,} characters, at most {MAX_TERM:,} are allowed"
            raise InvalidInputError(f"config.{field}[{index}]{member}", problem)


def _shorten(text: str) -> str:
    whole = text.encode(errors="replace").decode()  # half a surrogate pair cannot be sent
    return whole if len(whole) <= MAX_SHOWN else f"{whole[:MAX_SHOWN]}..."
