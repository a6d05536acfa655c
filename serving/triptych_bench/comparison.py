"""Comparison of reports: the same loads, ratios, and conditions that make the reports hard to compare."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from triptych_bench.results import Distribution, Report, Run, percentile_of

HIGHER, LOWER, NEITHER = 1, -1, 0
TOLERANCE = 0.05  # a server is steady within 10 % of its mean: less than half of that is noise

SECTIONS = ("target", "inputs", "settings", "machine")
REPEATED = ("protocol", "model", "model-version", "server started as", "concurrency", "rate")  # settings shown elsewhere


@dataclass(frozen=True, kw_only=True)
class ComparedValue:
    """A value of one report next to that of the first report."""

    value: float | None
    ratio: float | None = None  # of the value to the first report's
    verdict: str = ""  # "better", "same", "worse"; empty if neither is good or bad, or one value is missing


@dataclass(frozen=True, kw_only=True)
class MetricRow:
    """One metric of all reports."""

    name: str  # "p99 latency"
    kind: str  # "seconds", "rate", "bytes", "number"
    first: float | None
    others: tuple[ComparedValue, ...]


@dataclass(frozen=True, kw_only=True)
class MatchedLoad:
    """The same load in several reports; None for reports without it."""

    first: Run
    others: tuple[Run | None, ...]
    lines: tuple[MetricRow, ...]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A difference in the conditions of the reports."""

    section: str  # "target", "inputs", "settings", "machine"
    name: str
    values: tuple[str, ...]  # of all reports; empty for reports without it


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All reports, compared with the first."""

    names: tuple[str, ...]
    reports: tuple[Report, ...]
    headline: tuple[MetricRow, ...]
    matches: tuple[MatchedLoad, ...]
    unmatched: tuple[tuple[str, str], ...]  # report, run
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class ComparedMetric:
    """A figure of runs that is compared."""

    name: str
    kind: str
    better: int  # HIGHER, LOWER or NEITHER
    value: Callable[[Run], float | None]
    tolerance: float = TOLERANCE


def _row(name: str, kind: str, better: int, values: Sequence[float | None], tolerance: float = TOLERANCE) -> MetricRow:
    """Compare the values with the first; ratios that are no further from 1 than `tolerance` are the same."""
    first, *others = values
    cells = []
    for value in others:
        ratio = value / first if value is not None and first else None
        verdict = ""
        if ratio is not None and better != NEITHER:
            improved = (ratio > 1) == (better == HIGHER)
            verdict = "same" if abs(ratio - 1) <= tolerance else "better" if improved else "worse"
        cells.append(ComparedValue(value=value, ratio=ratio, verdict=verdict))
    return MetricRow(name=name, kind=kind, first=first, others=tuple(cells))


def kind_and_direction(name: str) -> tuple[str, int]:
    """Return kind and better direction of a headline figure, by the end of its name."""
    if name.endswith("_seconds"):
        return "seconds", LOWER
    if name.endswith("_bytes"):
        return "bytes", LOWER
    if name.endswith(("rate", "_per_second", "throughput", "goodput")):
        return "rate", HIGHER
    return "number", HIGHER if name in ("BLEU", "accuracy") else NEITHER


def _percentiles(label: str, of: Callable[[Run], Distribution | None], *names: str) -> Iterator[ComparedMetric]:
    def value_of(name: str) -> Callable[[Run], float | None]:
        return lambda run: percentile_of(of(run), name)

    return (ComparedMetric(f"p{name} {label}", "seconds", LOWER, value_of(name)) for name in names)


METRICS = (
    ComparedMetric("throughput", "rate", HIGHER, lambda run: run.throughput),
    ComparedMetric("goodput", "rate", HIGHER, lambda run: run.goodput),
    ComparedMetric("mean latency", "seconds", LOWER, lambda run: run.latency.mean if run.latency.count else None),
    *_percentiles("latency", lambda run: run.latency, "50", "90", "95", "99", "99.9"),
    *_percentiles("time to first token", lambda run: run.first_token, "50", "99"),
    *_percentiles("inter-token latency", lambda run: run.inter_token, "50", "99"),
    ComparedMetric("output tokens", "rate", HIGHER, lambda run: run.output_tokens),
    ComparedMetric("mean server queue", "seconds", LOWER, lambda run: run.parts.server_queue),
    ComparedMetric("mean server compute", "seconds", LOWER, lambda run: run.parts.server_compute),
    ComparedMetric("server CPU cores", "number", NEITHER, lambda run: run.resources.cpu_cores if run.resources else None),
    ComparedMetric("server memory", "bytes", LOWER, lambda run: run.resources.memory_bytes if run.resources else None),
    ComparedMetric("failed requests", "number", LOWER, lambda run: float(run.failures) or None),
    ComparedMetric("quality", "number", HIGHER, lambda run: run.quality.value if run.quality else None, 0.005),
)


def compare(first: Report, others: Sequence[Report], names: Sequence[str]) -> Comparison:
    """Compare all other reports with the first.

    Raises:
        ValueError: There is no other report, or the number of names is wrong.
    """
    reports = (first, *others)
    if len(reports) < 2 or len(names) != len(reports):
        raise ValueError(f"a comparison needs two reports, and a name for each: {len(reports)} reports, {len(names)} names")
    matches = tuple(_matches(first, others))
    differences = tuple(_differences(reports))
    return Comparison(
        names=tuple(names),
        reports=reports,
        headline=tuple(_headline(first, others)),
        matches=matches,
        unmatched=tuple(_unmatched(reports, names, matches)),
        differences=differences,
        warnings=tuple(_warnings(reports, names, matches, differences)),
    )


def _key(run: Run) -> tuple[str, int | None, float | None, int]:
    """Return what identifies a load."""
    return run.scenario, run.concurrency, run.offered_rate, run.inputs_per_request


def _by_key(report: Report) -> dict[tuple[str, int | None, float | None, int], Run]:
    """Index the runs; of equal loads the last counts, which confirms the result of a search."""
    return {_key(run): run for run in report.runs}


def _matches(first: Report, others: Sequence[Report]) -> Iterator[MatchedLoad]:
    tables = [_by_key(report) for report in others]
    for key, run in _by_key(first).items():
        found = tuple(table.get(key) for table in tables)
        if any(found):
            yield MatchedLoad(first=run, others=found, lines=tuple(_metric_rows((run, *found))))


def _metric_rows(runs: Sequence[Run | None]) -> Iterator[MetricRow]:
    """Compare the same load of all reports, by all metrics that any of them has."""
    for metric in METRICS:
        values = [None if run is None else metric.value(run) for run in runs]
        if any(value is not None for value in values):
            yield _row(metric.name, metric.kind, metric.better, values, metric.tolerance)


def _headline(first: Report, others: Sequence[Report]) -> Iterator[MetricRow]:
    """Compare the headline figures; 0 means that a report had no valid run."""
    for name, figure in first.headline.items():
        kind, better = kind_and_direction(name)
        values = [report.headline.get(name) or None for report in others]
        if any(value is not None for value in values):
            yield _row(name, kind, better, [figure or None, *values])


def _unmatched(reports: Sequence[Report], names: Sequence[str], matches: Sequence[MatchedLoad]) -> Iterator[tuple[str, str]]:
    matched = {_key(match.first) for match in matches}
    for name, report in zip(names, reports, strict=True):
        yield from ((name, run.name) for key, run in _by_key(report).items() if key not in matched)


def _differences(reports: Sequence[Report]) -> Iterator[Difference]:
    for section in SECTIONS:
        members = [getattr(report, section) for report in reports]
        for name in dict.fromkeys(name for member in members for name in member):
            values = tuple(member.get(name, "") for member in members)
            if len(set(values)) > 1:
                yield Difference(section=section, name=name, values=values)


def _warnings(
    reports: Sequence[Report],
    names: Sequence[str],
    matches: Sequence[MatchedLoad],
    differences: Sequence[Difference],
) -> Iterator[str]:
    for label, member in (("tasks", "task"), ("scenarios", "scenario"), ("programs", "tool")):
        values = [getattr(report, member) for report in reports]
        if len(set(values)) > 1:
            yield f"different {label}: {_listed(names, values)}"
    same_inputs = len({report.inputs.get("sha256", name) for name, report in zip(names, reports, strict=True)}) == 1
    for one in differences:  # targets are what is compared
        repeated = one.section == "settings" and one.name in REPEATED
        if one.section != "target" and not repeated and not (one.section == "inputs" and same_inputs):
            yield f"different {one.section}: {one.name}: {_listed(names, one.values)}"
    if not matches:
        yield "no load is the same in any two of the reports"
    for match in matches:  # compared runs that may not be quoted
        for name, run in zip(names, (match.first, *match.others), strict=True):
            if run and (run.problem or not run.trusted):
                yield f"{name}, {run.name}: {run.problem or ('not steady' if run.valid else 'not valid')}"


def _listed(names: Sequence[str], values: Sequence[str]) -> str:
    shortened = [value if len(value) <= 60 else f"{value[:57]}..." for value in values]
    return ", ".join(f"{name} {value or 'nothing'}" for name, value in zip(names, shortened, strict=True))
