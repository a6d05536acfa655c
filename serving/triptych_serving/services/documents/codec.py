"""What is asked for a document, from the wire, and what is answered, to the wire."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from triptych.v1 import translation_pb2
from triptych_documents.errors import DocumentError, OptionError, UnknownFormatError
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.format import FormatInfo, ReadOptions, find_format
from triptych_documents.rules import Term, TranslationRules
from triptych_serving.bundle.languages import is_language
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.translation.options import DecodingOptions
from triptych_serving.repository.registry import Wish
from triptych_serving.services.v1.codec import options_from
from triptych_serving.text.language_pair import SOURCE, TARGET

Request = translation_pb2.TranslateDocumentRequest
Config = translation_pb2.DocumentConfig

MAX_TERMS = 10_000  # of a glossary, and of what is kept
MAX_COLUMNS = 1_000  # each is looked for in the header
MAX_KEYS = 200  # patterns of each of keys and skip_keys: all of them are looked at for every value
MAX_STARS = 200  # in all of them
MAX_KEY = 1_000  # characters of one
# What a document has no use for, with what does no harm: it is split by its own rules, and has one translation.
UNUSED = {"num_hypotheses": 1, "target_prefix": (), "return_scores": False, "return_alignment": False, "split_sentences": 0}
LANGUAGES = {"source_language": SOURCE, "target_language": TARGET}
LISTS = ("columns", "keys", "skip_keys")
MAX_SHOWN = 500  # characters of a finding's message and place

KINDS = {kind: translation_pb2.FindingKind.Value(f"FINDING_KIND_{kind.name}") for kind in FindingKind}
SEVERITIES = {one: translation_pb2.FindingSeverity.Value(f"FINDING_SEVERITY_{one.name}") for one in Severity}


@dataclass(frozen=True)
class Order:
    """What is asked for a document."""

    kind: FormatInfo
    wish: Wish
    options: DecodingOptions
    reading: ReadOptions
    glossary: tuple[Term, ...] = ()
    keep: tuple[str, ...] = ()

    def read_options(self, languages: tuple[str, str]) -> ReadOptions:
        """How it is read, as one that is translated between these languages."""
        return replace(self.reading, source_language=languages[0], target_language=languages[1])

    def rules(self, languages: tuple[str, str]) -> TranslationRules:
        """What must hold in its translation, between these languages."""
        return TranslationRules(
            source_language=languages[0], target_language=languages[1], glossary=self.glossary, keep=self.keep
        )


def order_from(config: Config) -> Order:
    """What a config asks for.

    Raises:
        InvalidInputError: it contradicts itself, or a member has a value that makes no sense; names it.
    """
    for name in (SOURCE, TARGET):
        if (code := getattr(config, name)) and not is_language(code):
            raise InvalidInputError(f"config.{name}", f"{code!r:.100} is not a language code such as de, de-DE or deu_Latn")
    wish = Wish(config.model, config.model_version, config.source_language_code, config.target_language_code)
    return Order(_kind(config), wish, _options(config), _reading(config), _glossary(config), _keep(config))


def in_config(error: InvalidInputError) -> InvalidInputError:
    """The same of a document's config, of which requests for texts have the members too."""
    return InvalidInputError(f"config.{error.field}", error.problem)


def invalid_document(error: DocumentError) -> InvalidInputError:
    """What is wrong with a document, or with how it is to be read."""
    if not isinstance(error, OptionError):
        return InvalidInputError("document", str(error))
    if error.field in LANGUAGES:
        return InvalidInputError(f"config.{LANGUAGES[error.field]}", error.problem)
    known = error.field in {field.name for field in fields(ReadOptions)}
    return InvalidInputError(f"config.read_options.{error.field}" if known else f"config.{error.field}", error.problem)


def finding_to(finding: Finding) -> translation_pb2.DocumentFinding:
    """One of them."""
    return translation_pb2.DocumentFinding(
        kind=KINDS[finding.kind],
        severity=SEVERITIES[finding.severity],
        where=_shown(finding.where),
        message=_shown(finding.message),
    )


def _kind(config: Config) -> FormatInfo:
    given = next((name for name in ("format", "mime_type", "file_name") if getattr(config, name)), "")
    if not given:
        raise InvalidInputError(
            "config.file_name", "it is missing, as are mime_type and format: one must say what the document is"
        )
    try:
        return find_format(name=config.format, path=config.file_name, mime_type=config.mime_type)
    except UnknownFormatError as error:
        raise InvalidInputError(f"config.{given}", str(error)) from error


def _options(config: Config) -> DecodingOptions:
    for field, value in config.options.ListFields():
        if field.name in UNUSED and value != UNUSED[field.name]:
            raise InvalidInputError(f"config.options.{field.name}", "a document has no use for it, leave it out")
    try:
        return options_from(config.options)
    except InvalidInputError as error:
        raise in_config(error) from error


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
            raise InvalidInputError(f"{field}[{index}]", f"it has {len(pattern):,} characters, at most {MAX_KEY:,} are allowed")
    if (stars := sum(pattern.count("*") for pattern in patterns)) > MAX_STARS:
        raise InvalidInputError(field, f"{stars:,} times *, at most {MAX_STARS:,} are allowed in all of them")


def _glossary(config: Config) -> tuple[Term, ...]:
    _check_texts("glossary", [term.source for term in config.glossary], ".source")
    _check_texts("glossary", [term.target for term in config.glossary], ".target")
    return tuple(Term(term.source, term.target) for term in config.glossary)


def _keep(config: Config) -> tuple[str, ...]:
    _check_texts("keep", config.keep)
    return tuple(config.keep)


def _check_texts(field: str, texts: Sequence[str], member: str = "") -> None:
    if len(texts) > MAX_TERMS:
        raise InvalidInputError(f"config.{field}", f"{len(texts):,} entries, at most {MAX_TERMS:,} are allowed")
    for index, text in enumerate(texts):
        if not text.strip():
            raise InvalidInputError(f"config.{field}[{index}]{member}", "it is empty")


def _shown(text: str) -> str:
    whole = text.encode(errors="replace").decode()  # half a surrogate pair cannot be sent
    return whole if len(whole) <= MAX_SHOWN else f"{whole[:MAX_SHOWN]}..."
