"""What became of the documents of a job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from typing import Any

from triptych_cli.documents.discovery import Found
from triptych_documents.findings import Finding, FindingKind, Severity


class State(StrEnum):
    """Of one document."""

    TRANSLATED = "translated"
    UNCHANGED = "unchanged"  # an earlier run had translated it
    COPIED = "copied"  # no format reads it
    IGNORED = "ignored"  # likewise, and copies were not asked for
    FAILED = "failed"


@dataclass(frozen=True)
class Summary:
    """Of one document; findings in the document's order."""

    source: str
    target: str
    format: str
    state: State
    units: int = 0
    segments: int = 0
    characters: int = 0
    findings: Sequence[Finding] = ()

    @property
    def errors(self) -> int:
        """Places where the source text was left, and what made the whole document fail."""
        return sum(finding.severity is Severity.ERROR for finding in self.findings)

    def values(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "state": self.state.value, "findings": [finding.values() for finding in self.findings]}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Summary":
        """What `values` gave."""
        findings = [
            Finding(FindingKind(kind), Severity(severity), where, message)
            for kind, severity, where, message in map(itemgetter("kind", "severity", "where", "message"), values["findings"])
        ]
        return cls(**{**values, "state": State(values["state"]), "findings": findings})


def failed(found: Found, target: str, problem: str, where: str = "") -> Summary:
    """A document that has no translation, and why."""
    finding = Finding(FindingKind.FORMAT, Severity.ERROR, where, problem)
    return Summary(str(found.source), target, found.kind.name if found.kind else "", State.FAILED, findings=[finding])
