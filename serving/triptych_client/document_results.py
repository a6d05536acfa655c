"""What `translate_document` returns, and tells on the way."""

from dataclasses import dataclass
from enum import StrEnum

from triptych_client.results import Served


class FindingKind(StrEnum):
    """What was found."""

    PLACEHOLDER = "placeholder"
    """A placeholder, URL, number or e-mail address did not survive."""
    TAG = "tag"
    """Inline markup could not be placed by alignment."""
    GLOSSARY = "glossary"
    """A term is not translated as the glossary says."""
    TRUNCATED = "truncated"
    """The translation ran into its length limit."""
    REFUSED = "refused"
    """The model would not take the text."""
    NORMALIZED = "normalized"
    """The source was not in Unicode's form NFC."""
    LENGTH = "length"
    """The translation is longer than its place allows."""
    FORMAT = "format"
    """The document itself is at fault."""
    UNKNOWN = "unknown"
    """A kind that this client does not know."""


class Severity(StrEnum):
    """How bad it is."""

    NOTE = "note"
    """Nothing to do."""
    WARNING = "warning"
    """Look at it."""
    ERROR = "error"
    """The source text was left in its place."""
    UNKNOWN = "unknown"
    """One that this client does not know."""


@dataclass(frozen=True, slots=True)
class DocumentFinding:
    """What a reader of the translated document should know about one place in it."""

    kind: FindingKind
    severity: Severity
    where: str
    """For people: "line 12", "cue 7", "messages.title"."""
    message: str


@dataclass(frozen=True, slots=True)
class DocumentProgress:
    """How far the translation of a document is."""

    segments_done: int
    """Paragraphs, cells, messages: what is translated by itself."""
    segments: int
    """In all; 0 as long as the document is being read."""


@dataclass(frozen=True, slots=True)
class TranslatedDocument(Served):
    """A translated document."""

    content: bytes
    """The document, in the format that it came in."""
    findings: tuple[DocumentFinding, ...]
    """What should be known of single places; often nothing."""
    format: str
    """What the document was taken for, such as "docx"."""
    mime_type: str
    segments: int
    """Paragraphs, cells, messages."""
    sentences: int
    """Of all segments; equal ones are translated once."""
