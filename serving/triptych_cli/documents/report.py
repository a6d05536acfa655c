"""What a job says of itself: a file for programs, a few lines for people."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from triptych.version import __version__
from triptych_cli.documents.counting import Planned
from triptych_cli.documents.job import Outcome
from triptych_cli.documents.summary import State
from triptych_cli.documents.writing import write_json
from triptych_documents.findings import Severity

VERSION = 1  # of the file
SHOWN = 20  # findings on the terminal


def write_report(path: Path, outcome: Outcome) -> None:
    """As JSON.

    Raises:
        OSError: it cannot be written.
    """
    write_json(path, report(outcome))


def write_plan(path: Path, planned: Planned) -> None:
    """What a dry run has counted, as JSON.

    Raises:
        OSError: it cannot be written.
    """
    write_json(path, {"version": VERSION, "tool": f"triptych {__version__}", "dry_run": vars(planned)})


def report(outcome: Outcome) -> dict[str, Any]:
    """The members are explained in serving/docs/documents.md."""
    return {
        "version": VERSION,
        "tool": f"triptych {__version__}",
        "complete": outcome.is_complete,
        "model": {name: value for name, value in vars(outcome.identity).items() if value},
        "seconds": round(outcome.seconds, 3),
        "documents": {state.value: count for state, count in _states(outcome).items()},
        "segments": vars(outcome.counts),
        "findings": _findings(outcome),
        "results": [summary.values() for summary in outcome.documents],
    }


def lines(outcome: Outcome) -> Iterator[str]:
    """For a terminal."""
    counts, states = outcome.counts, _states(outcome)
    documents = ", ".join(f"{count:,} {state.value}" for state, count in states.items()) or "none"
    yield f"documents: {documents}"
    known = f"{counts.translated:,} translated, {counts.remembered:,} remembered"
    human = f", {counts.human:,} from people" if counts.human else ""
    speed = f"{counts.done / outcome.seconds:,.0f}/s" if outcome.seconds else ""
    yield f"segments: {counts.done:,} ({known}{human}) in {outcome.seconds:,.1f} s, {speed}"
    if found := _findings(outcome):
        yield "findings: " + ", ".join(f"{count:,} {name}" for name, count in found.items())


def plan_lines(planned: Planned) -> Iterator[str]:
    """For a terminal."""
    others = {"done": planned.done, "of other formats": planned.others, "that cannot be done": planned.failed}
    rest = "".join(f", {count:,} {name}" for name, count in others.items() if count)
    yield f"documents: {planned.documents:,} to translate{rest}"
    yield f"units: {planned.units:,} ({planned.repeated:,} repeated), {planned.characters:,} characters"
    left = planned.segments - planned.remembered
    yield f"segments: {left:,} to translate, {planned.remembered:,} remembered"


def problems(outcome: Outcome) -> Iterator[str]:
    """Errors, place by place, the first ones."""
    errors = [
        f"{summary.source}: {f'{finding.where}: ' if finding.where else ''}{finding.message}"
        for summary in outcome.documents
        for finding in summary.findings
        if finding.severity is Severity.ERROR
    ]
    yield from errors[:SHOWN]
    if len(errors) > SHOWN:
        yield f"... and {len(errors) - SHOWN:,} more; --report has them all"


def _states(outcome: Outcome) -> dict[State, int]:
    counted = Counter(summary.state for summary in outcome.documents)
    return {state: counted[state] for state in State if counted[state]}


def _findings(outcome: Outcome) -> dict[str, int]:
    """How many of each severity."""
    counted = Counter(finding.severity for summary in outcome.documents for finding in summary.findings)
    return {f"{severity.value}s": counted[severity] for severity in Severity if counted[severity]}
