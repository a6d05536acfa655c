"""The report of a job: a JSON file for programs, a few lines for users."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from triptych.version import __version__
from triptych_cli.documents.document_files import DocumentState, DocumentSummary
from triptych_cli.documents.dry_run import PlannedWork
from triptych_cli.documents.files import write_json
from triptych_cli.documents.human import dropped_lines
from triptych_cli.documents.job import JobResult
from triptych_documents.findings import Severity

HEAD = {"version": 1, "tool": f"triptych {__version__}"}  # the version of the file
SHOWN = 20  # errors on the terminal


def write_report(path: Path, result: JobResult) -> None:
    """Write the report; serving/docs/documents.md explains its members. Raises OSError: it cannot be written."""
    report: dict[str, Any] = {
        **HEAD,
        "complete": result.is_complete,
        "model": {name: value for name, value in vars(result.identity).items() if value},
        "seconds": round(result.seconds, 3),
        "documents": {state.value: count for state, count in _states(result).items()},
        "segments": vars(result.counts),
        "findings": _findings(result),
        "dropped_entries": {str(file): dict(counts) for file, counts in result.dropped.items() if counts},
        "results": [summary.values() for summary in result.documents],
    }
    write_json(path, report)


def write_plan(path: Path, planned: PlannedWork) -> None:
    """Write the counts of a dry run and the documents that cannot be done. Raises OSError: they cannot be written."""
    counts = dict(vars(planned))
    failures = counts.pop("failures")
    write_json(path, {**HEAD, "dry_run": counts, "results": [summary.values() for summary in failures]})


def result_lines(result: JobResult) -> Iterator[str]:
    """Yield lines for the terminal."""
    counts, states = result.counts, _states(result)
    documents = ", ".join(f"{count:,} {state.value}" for state, count in states.items()) or "none"
    yield f"documents: {documents}"
    known = f"{_numbered(counts.translated, 'model call')} including retries, {counts.remembered:,} remembered"
    human = f", {counts.human:,} from people" if counts.human else ""
    speed = f", {counts.done / result.seconds:,.0f}/s" if result.seconds else ""
    yield f"{_numbered(counts.done, 'segment')}, {known}{human}, {result.seconds:,.1f} s{speed}"
    yield from dropped_lines(result.dropped)
    if found := _findings(result):
        yield "findings: " + ", ".join(_numbered(count, name.removesuffix("s")) for name, count in found.items())


def plan_lines(planned: PlannedWork) -> Iterator[str]:
    """Yield lines for the terminal."""
    others = {"done": planned.done, "of other formats": planned.others, "that cannot be done": planned.failed}
    rest = "".join(f", {count:,} {name}" for name, count in others.items() if count)
    yield f"documents: {planned.documents:,} to translate{rest}"
    yield f"units: {planned.units:,} ({planned.repeated:,} repeated), {planned.characters:,} characters"
    left = planned.segments - planned.remembered
    yield f"segments: {left:,} to translate, {planned.remembered:,} remembered"


def error_lines(documents: Iterable[DocumentSummary]) -> Iterator[str]:
    """Yield the first errors, with their documents and places."""
    errors = [
        f"{summary.source}: {f'{finding.where}: ' if finding.where else ''}{finding.message}"
        for summary in documents
        for finding in summary.findings
        if finding.severity is Severity.ERROR
    ]
    return first_lines(errors)


def first_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield the first lines, and how many more there are."""
    yield from lines[:SHOWN]
    if len(lines) > SHOWN:
        yield f"... and {len(lines) - SHOWN:,} more; --report has them all"


def _states(result: JobResult) -> dict[DocumentState, int]:
    found = Counter(summary.state for summary in result.documents)
    return {state: found[state] for state in DocumentState if found[state]}


def _findings(result: JobResult) -> dict[str, int]:
    found = Counter(finding.severity for summary in result.documents for finding in summary.findings)
    return {f"{severity.value}s": found[severity] for severity in Severity if found[severity]}


def _numbered(count: int, noun: str) -> str:
    """Return a number with its noun: "1 error", "2 errors"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
