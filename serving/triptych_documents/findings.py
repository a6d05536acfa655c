"""What a reader of a translated document should know, place by place."""

from dataclasses import dataclass
from enum import Enum


class FindingKind(Enum):
    """What was found."""

    PLACEHOLDER = "placeholder"  # a placeholder, URL, number or e-mail address did not survive
    TAG = "tag"  # inline markup could not be placed by alignment
    GLOSSARY = "glossary"  # a term is not translated as the glossary says
    TRUNCATED = "truncated"  # the translation ran into its length limit
    REFUSED = "refused"  # the model would not take it
    NORMALIZED = "normalized"  # the source was not in Unicode's form NFC
    LENGTH = "length"  # longer than its place allows
    FORMAT = "format"  # the document itself is at fault


class Severity(Enum):
    """How bad it is."""

    NOTE = "note"  # nothing to do
    WARNING = "warning"  # look at it
    ERROR = "error"  # the source text was left in its place


@dataclass(frozen=True, slots=True)
class Finding:
    """One of them."""

    kind: FindingKind
    severity: Severity
    where: str  # as Unit.where
    message: str

    def values(self) -> dict[str, str]:
        """For JSON."""
        return {"kind": self.kind.value, "severity": self.severity.value, "where": self.where, "message": self.message}
