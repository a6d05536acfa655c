"""Comparisons of reports, as values, text, JSON and page."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from playwright.sync_api import sync_playwright

from triptych_bench.comparison import Comparison, MetricRow, compare
from triptych_bench.reports import comparison, jsonfile, page, write
from triptych_bench.results import Report
from triptych_cli.bench.command import compare_reports

from .reports.pages import LOADS, Page, charts
from .reports.sample import closed, full, opened, report, unanswered

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


def compared(first: Report, *others: Report) -> Comparison:
    return compare(first, others, "ABCDEFGHI"[: 1 + len(others)])


def metric(found: Comparison, name: str) -> MetricRow:
    [row] = [row for row in found.matches[0].lines if row.name == name]
    return row


def written(folder: Path, *reports: Report) -> Sequence[str]:
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{name}.json" for name in "abc"[: len(reports)]]
    for path, one in zip(paths, reports, strict=True):
        write(path, jsonfile.dumps(one))
    return [str(path) for path in paths]


def test_equal_loads_are_matched_and_the_last_of_equal_rates_counts() -> None:
    found = compared(report(closed(1, 1.0, 1.0), closed(2, 2.0, 1.0)), report(closed(2, 3.0, 1.0), closed(4, 3.0, 1.0)))
    assert [match.first.name for match in found.matches] == ["concurrency 2"]
    assert found.unmatched == (("A", "concurrency 1"), ("B", "concurrency 4"))
    other_batches = compared(report(closed(1, 1.0, 1.0)), report(closed(1, 1.0, 1.0, inputs_per_request=8)))
    assert other_batches.matches == ()
    assert "no load is the same in any two of the reports" in other_batches.warnings
    found = compared(report(opened(50.0, 0.01), opened(50.0, 0.02)), report(opened(50.0, 0.03)))
    assert len(found.matches) == 1
    assert metric(found, "p50 latency").first == pytest.approx(0.02)
    found = compared(report(closed(1, 100.0, 0.02)), report(unanswered(1)))
    for name in ("mean latency", "p50 latency", "p99 latency"):
        assert metric(found, name).others[0].value is None
    assert "better" not in comparison.render(found)
    assert "p99 latency" not in page.render(compared(report(unanswered(1)), report(unanswered(1))))


def test_ratios_and_verdicts_of_values_that_are_there() -> None:
    slow, fast = report(closed(1, 100.0, 0.02)), report(closed(1, 125.0, 0.016))
    better, worse = compared(slow, fast), compared(fast, slow)
    [throughput] = metric(better, "throughput").others
    assert (throughput.value, throughput.ratio, throughput.verdict) == (125.0, 1.25, "better")
    [latency] = metric(better, "p99 latency").others
    assert (latency.ratio, latency.verdict) == (pytest.approx(0.8), "better")
    assert metric(worse, "throughput").others[0].verdict == metric(worse, "p99 latency").others[0].verdict == "worse"
    close = compared(report(closed(1, 100.0, 0.02)), report(closed(1, 104.9, 0.0191)))
    assert metric(close, "throughput").others[0].verdict == metric(close, "p50 latency").others[0].verdict == "same"
    run = full()
    assert run.quality
    poor = replace(run, quality=replace(run.quality, value=33.0))
    assert metric(compared(report(run), report(poor)), "quality").others[0].verdict == "worse"
    found = compared(report(full()), report(replace(full(), first_token=None)))
    [cell] = metric(found, "p50 time to first token").others
    assert (cell.value, cell.ratio, cell.verdict) == (None, None, "")
    [cell] = metric(compared(report(closed(8, 1.0, 0.02)), report(full())), "output tokens").others
    assert (cell.value, cell.ratio) == (9_000.0, None)


def test_all_reports_are_compared_with_the_first() -> None:
    reports = [report(closed(1, rate, 0.02), headline={"max_throughput": rate}) for rate in (100.0, 200.0, 50.0)]
    found = compared(*reports, report(closed(2, 1.0, 1.0)))
    assert [cell.ratio for cell in metric(found, "throughput").others] == [2.0, 0.5, None]
    assert [cell.verdict for cell in found.headline[0].others[:2]] == ["better", "worse"]
    assert found.matches[0].others[2] is None
    assert comparison.render(found)
    assert Page(page.render(found)).text
    with pytest.raises(ValueError, match="a comparison needs two reports"):
        compare(report(), [], ["A"])


def test_headline_figures_have_a_better_direction() -> None:
    figures = {"p90_seconds": "worse", "max_rate": "better", "memory_bytes": "worse", "BLEU": "better", "confidence": ""}
    found = compared(report(headline=dict.fromkeys(figures, 1.0)), report(headline=dict.fromkeys(figures, 2.0)))
    assert {row.name: row.others[0].verdict for row in found.headline} == figures
    # 0 means that a report has no valid run.
    [row] = compared(
        report(headline={"max_rate": 5.0}), report(headline={"max_rate": 0.0}), report(headline={"max_rate": 1.0})
    ).headline
    assert (row.others[0].value, row.others[0].verdict) == (None, "")


def test_conditions_and_doubtful_runs_are_warnings_but_not_targets() -> None:
    other = report(
        task="embed",
        tool="triptych 0.2.0",
        inputs={"source": "mine", "sha256": "cd" * 32},
        settings={"beam-size": "1"},
        machine={"processor": "abacus", "cpus": "4"},
    )
    warnings = "\n".join(compared(report(), other).warnings)
    assert "different tasks: A translate, B embed" in warnings
    assert "different programs: A triptych 0.1.0, B triptych 0.2.0" in warnings
    assert "different inputs: source: A bundled, B mine" in warnings
    assert "different settings: beam-size: A 4, B 1" in warnings
    assert "different machine: cpus: A 2, B 4" in warnings
    assert "processor" not in warnings
    moved = report(inputs={**report().inputs, "source": "/elsewhere"})  # the same inputs
    assert not [one for one in compared(report(), moved).warnings if "inputs" in one]
    peer = report(target={"address": "other:8001", "model": "en-de"}, settings={"beam-size": "4", "protocol": "oip"})
    found = compared(report(), peer)
    assert not [one for one in found.warnings if "address" in one or "protocol" in one]
    assert {(one.section, one.name) for one in found.differences} >= {("target", "address"), ("settings", "protocol")}
    doubtful = report(
        closed(1, 100.0, 0.01, valid=False, problem="it was late"),
        closed(2, 100.0, 0.01, steady=False),
        closed(4, 100.0, 0.01, problem="the load generator was the limit"),
    )
    warnings = compared(report(*(closed(number, 100.0, 0.01) for number in (1, 2, 4))), doubtful).warnings
    assert warnings == (
        "B, concurrency 1: it was late",
        "B, concurrency 2: not steady",
        "B, concurrency 4: the load generator was the limit",
    )


@pytest.mark.parametrize("width", [80, 120])
def test_the_text_fits_the_screen(width: int) -> None:
    wide = report(*(closed(number, 1234.5 * number, 0.0123, goodput=99.0, output_tokens=12345.0) for number in (1, 2, 4)))
    text = comparison.render(compared(wide, wide), width)
    assert max(map(len, text.splitlines())) <= width
    assert "1.00x same" in text
    assert "concurrency 4" in text


def test_the_page_is_complete_and_escapes_texts_of_users() -> None:
    text = page.render(compared(report(), report(headline={"max_throughput": 500.0}), report(closed(1, 90.0, 0.02))))
    parsed = Page(text)
    assert len(charts(text)) == 2
    assert not [(tag, name) for tag, attributes in parsed.tags for name in attributes if name in LOADS]
    assert "Ratios are to A." in parsed.text
    assert parsed.count("td", **{"class": "verdict worse"}) > 0
    hostile = "<script>alert(1)</script>"
    found = compare(report(settings={hostile: hostile}), [report(task=hostile)], [hostile, "B"])
    parsed = Page(page.render(found))
    assert parsed.count("script") == 1
    assert hostile in parsed.text


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_long_names_stay_on_the_page() -> None:
    text = page.render(compare(report(), [report()], ["a" * 300, "b" * 300]))
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as browser,
    ):
        shown = browser.new_page(viewport={"width": 360, "height": 740})
        shown.set_content(text)
        assert shown.evaluate("document.documentElement.scrollWidth") <= 360
        browser.close()


def test_the_page_can_be_standard_output(tmp_path: Path) -> None:
    paths = written(tmp_path, report(closed(1, 1.0, 1.0)), report(closed(1, 2.0, 1.0)))
    result = CliRunner().invoke(compare_reports, [*paths, "--html", "-"])
    assert result.stdout.startswith("<!DOCTYPE html>")
    assert result.stderr.strip()


def test_the_command_compares_files(tmp_path: Path) -> None:
    paths = written(tmp_path, report(closed(1, 100.0, 0.02)), report(closed(1, 150.0, 0.01)))
    html = tmp_path / "page.html"
    result = CliRunner().invoke(compare_reports, [*paths, "--html", str(html)])
    assert result.exit_code == 0, result.output
    assert "100 → 150 1.50x better" in result.output
    assert "Comparison of a, b" in html.read_text()
    [path] = written(tmp_path, report())
    other = tmp_path / "other.json"
    other.write_text("{}")
    result = CliRunner().invoke(compare_reports, [path, str(other)])
    assert result.exit_code == 1
    assert result.output.startswith(f"Error: {other}: not a report of `triptych bench`")
    assert CliRunner().invoke(compare_reports, [path]).exit_code == 2


def test_the_command_prints_json(tmp_path: Path) -> None:
    result = CliRunner().invoke(compare_reports, [*written(tmp_path, report(), report(), report()), "--json"])
    value = json.loads(result.stdout)
    assert (value["format"], value["version"], value["names"]) == ("triptych-bench-comparison", 1, ["a", "b", "c"])
    throughput = value["matches"][0]["lines"][0]
    assert throughput["name"] == "throughput"
    assert [cell["ratio"] for cell in throughput["others"]] == [1.0, 1.0]
    assert value["matches"][0]["concurrency"] == 1
    paths = [*written(tmp_path / "one", report()), *written(tmp_path / "two", report())]  # files of the same name
    assert json.loads(CliRunner().invoke(compare_reports, [*paths, "--json"]).stdout)["names"] == paths
