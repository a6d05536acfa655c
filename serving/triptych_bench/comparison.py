"""What a comparison of reports says."""

from dataclasses import dataclass

from triptych_bench.results import Report, Run


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A report's value beside the first one's."""

    value: float | None
    ratio: float | None = None  # of the value to the first report's
    verdict: str = ""  # "better", "same", "worse"; empty where neither is good or bad, or nothing can be said


@dataclass(frozen=True, kw_only=True)
class Line:
    """One metric."""

    name: str  # "p99 latency"
    kind: str  # "seconds", "rate", "bytes", "number"
    first: float | None
    others: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True)
class Match:
    """The same load on all reports; None where a report lacks it."""

    name: str
    scenario: str
    first: Run
    others: tuple[Run | None, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What reports say differently of how they came about."""

    section: str  # "target", "inputs", "settings", "machine"
    name: str
    values: tuple[str, ...]  # of all reports; empty where one says nothing


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The first report is what the others are measured by."""

    names: tuple[str, ...]
    reports: tuple[Report, ...]
    headline: tuple[Line, ...]
    matches: tuple[Match, ...]
    unmatched: tuple[tuple[str, str], ...]  # report, run
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]
