"""Reports beside each other: the same loads, ratios, and what makes them hard to compare."""

from collections.abc import Iterator, Sequence

from triptych_bench.comparison import Comparison, Difference, Line, Match
from triptych_bench.metrics import METRICS, direction, judged, line
from triptych_bench.results import Report, Run

SECTIONS = ("target", "inputs", "settings", "machine")
WARNED = ("inputs", "settings", "machine")  # targets are what one compares
TOLD_OTHERWISE = ("protocol", "model", "model-version", "server started as", "concurrency", "rate")  # settings: targets, loads
Key = tuple[str, int | None, float | None, int]


def compare(first: Report, others: Sequence[Report], names: Sequence[str]) -> Comparison:
    """Every other report beside the first.

    Args:
        names: of all, as the user shall read them.

    Raises:
        ValueError: there is nothing to compare with, or there are not as many names as reports.
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


def _key(run: Run) -> Key:
    """What makes loads the same."""
    return run.scenario, run.concurrency, run.offered_rate, run.inputs_per_request


def _by_key(report: Report) -> dict[Key, Run]:
    """The last of the same load: it confirms what a search has found."""
    return {_key(run): run for run in report.runs}


def _matches(first: Report, others: Sequence[Report]) -> Iterator[Match]:
    tables = [_by_key(report) for report in others]
    for key, run in _by_key(first).items():
        found = tuple(table.get(key) for table in tables)
        if any(found):
            lines = (line(metric, run, found) for metric in METRICS)
            kept = tuple(one for one in lines if one.first is not None or any(cell.value is not None for cell in one.others))
            yield Match(name=run.name, scenario=run.scenario, first=run, others=found, lines=kept)


def _headline(first: Report, others: Sequence[Report]) -> Iterator[Line]:
    """Figures that a report and the first one both have; 0 stands for none, of reports without a valid run."""
    for name, figure in first.headline.items():
        kind, better = direction(name)
        base = figure or None
        values = [report.headline.get(name) or None for report in others]
        if any(value is not None for value in values):
            cells = tuple(judged(value, base, better) for value in values)
            yield Line(name=name, kind=kind, first=base, others=cells)


def _unmatched(reports: Sequence[Report], names: Sequence[str], matches: Sequence[Match]) -> Iterator[tuple[str, str]]:
    """Runs whose load a report has alone."""
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
    reports: Sequence[Report], names: Sequence[str], matches: Sequence[Match], differences: Sequence[Difference]
) -> Iterator[str]:
    for name, member in (("tasks", "task"), ("scenarios", "scenario"), ("programs", "tool")):
        said = [getattr(report, member) for report in reports]
        if len(set(said)) > 1:
            yield f"different {name}: {_listed(names, said)}"
    same_inputs = len({report.inputs.get("sha256", name) for name, report in zip(names, reports, strict=True)}) == 1
    for one in differences:
        said_already = one.section == "settings" and one.name in TOLD_OTHERWISE
        if one.section in WARNED and not said_already and not (one.section == "inputs" and same_inputs):
            yield f"different {one.section}: {one.name}: {_listed(names, one.values)}"
    if not matches:
        yield "no load is the same in any two of the reports"
    yield from _doubts(names, matches)


def _doubts(names: Sequence[str], matches: Sequence[Match]) -> Iterator[str]:
    """Runs that are compared and may not be quoted."""
    for match in matches:
        for name, run in zip(names, (match.first, *match.others), strict=True):
            if run and (run.problem or not (run.valid and run.steady)):
                yield f"{name}, {run.name}: {run.problem or ('not steady' if run.valid else 'not valid')}"


def _listed(names: Sequence[str], values: Sequence[str]) -> str:
    return ", ".join(f"{name} {_shortened(value) or 'nothing'}" for name, value in zip(names, values, strict=True))


def _shortened(value: str) -> str:
    return value if len(value) <= 60 else f"{value[:57]}..."
