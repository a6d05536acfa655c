"""Findings: remarks about single places of a translated document."""

from dataclasses import dataclass
from enum import Enum


class FindingKind(Enum):
    """Category of a finding."""

    PLACEHOLDER = "placeholder"  # a placeholder, URL, number or e-mail address is missing or was added
    TAG = "tag"  # inline markup was placed by proportion, not by alignment
    GLOSSARY = "glossary"  # a term is not translated as the glossary says
    TRUNCATED = "truncated"  # the translation reached its length limit
    REFUSED = "refused"  # the translator rejected the text
    NORMALIZED = "normalized"  # the source was not in Unicode's form NFC
    LENGTH = "length"  # longer than its field allows
    FORMAT = "format"  # a problem of the document itself


class Severity(Enum):
    """Severity of a finding."""

    NOTE = "note"  # for information
    WARNING = "warning"  # worth a check
    ERROR = "error"  # the source text was kept


@dataclass(frozen=True, slots=True)
class Finding:
    """A remark about one place of a document."""

    kind: FindingKind
    severity: Severity
    where: str  # see Unit.where
    message: str

    def values(self) -> dict[str, str]:
        """Return the finding as a JSON object."""
        return {"kind": self.kind.value, "severity": self.severity.value, "where": self.where, "message": self.message}
