"""The HTML page of a report."""

import re
from dataclasses import replace

import pytest

from triptych_bench.reports import page
from triptych_bench.results import Report, Run, TimeBreakdown

from .pages import LOADS, Page, charts, hits
from .sample import closed, full, opened, report, unanswered

HOSTILE = "</script><script>alert(1)</script>\"'&<b>"


@pytest.fixture(scope="module")
def text() -> str:
    return page.render(report())


def test_the_page_is_well_formed_and_loads_no_external_resources(text: str) -> None:
    parsed = Page(text)
    assert parsed.count("html", lang="en") == 1
    assert parsed.count("title") >= 1
    assert len(charts(text)) == parsed.count("svg", role="img") == 6  # two, the time lines of three runs, the parts
    assert not [(tag, name) for tag, attributes in parsed.tags for name in attributes if name in LOADS]
    assert not re.findall(r"url\(|@import|fetch\(|XMLHttpRequest|https?://", text)
    [policy] = [has["content"] for tag, has in parsed.tags if has.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert parsed.count("figure") == parsed.count("figcaption") == 6
    assert all(chart.attrib["aria-label"] for chart in charts(text))
    assert parsed.text.count("Values of ") == 6
    assert (
        "From concurrency 1 with 100 inputs/s at a p99 of 30.0 ms to concurrency 8 with 400 inputs/s at 60.0 ms." in parsed.text
    )


def test_texts_of_users_are_escaped() -> None:
    run = closed(1, 10.0, 0.1, name=HOSTILE, valid=False, problem=HOSTILE)
    other = replace(run, concurrency=2)
    hostile = report(run, other, command=HOSTILE, task=HOSTILE, target={HOSTILE: HOSTILE}, headline={HOSTILE: 1.0})
    text = page.render(hostile)
    parsed = Page(text)
    assert parsed.count("script") == 1
    assert parsed.count("b") == 0
    assert "alert(1)" in parsed.text
    assert len(charts(text)) == 5


def test_points_are_at_their_values(text: str) -> None:
    tradeoff = charts(text)[0]
    p50 = [(x, y) for x, y, label in hits(tradeoff) if "\np50 " in label]
    assert len(p50) == 3
    left, bottom = 56, 316  # no throughput, no latency
    scales = [(x - left) / throughput for (x, _), throughput in zip(p50, (100.0, 180.0, 400.5), strict=True)]
    assert scales == pytest.approx([scales[0]] * 3, rel=1e-3)
    heights = [(bottom - y) / seconds for (_, y), seconds in zip(p50, (0.01, 0.012, 0.02), strict=True)]
    assert heights == pytest.approx([heights[0]] * 3, rel=1e-2)


def test_invalid_runs_limits_and_counters_are_shown() -> None:
    text = page.render(report(closed(1, 100.0, 0.01), closed(64, 300.0, 0.5, valid=False, problem="it was late")))
    parsed = Page(text)
    assert "Before you quote these numbers concurrency 64: invalid: it was late" in parsed.text
    assert sum("hollow" in one.attrib.get("class", "") for one in charts(text)[0].iter()) == 3
    assert parsed.count("tr", **{"class": "bad"}) == 1
    assert "Before you quote" not in page.render(report(closed(1, 100.0, 0.01), closed(2, 200.0, 0.01)))
    text = page.render(report(opened(50.0, 0.04), opened(60.0, 0.05), opened(80.0, 0.1)))
    assert "limit 200 ms" in text
    assert "50 requests/s" in text
    assert (
        "limit" not in page.render(report(closed(1, 10.0, 0.01), closed(2, 20.0, 0.01))).split("<main>")[1].split("<section")[0]
    )
    shown = Page(page.render(report(full()))).text
    assert "BLEU 33.2 tok:13a" in shown
    assert "concurrency 8 ModelStatistics 7,000 7,000 19.0 ms 20.0 ms" in shown


@pytest.mark.parametrize(
    "one",
    [
        Report(),
        report(closed(1, 10.0, 0.1)),
        report(replace(closed(1, 10.0, 0.1), moments=(), parts=TimeBreakdown())),
        report(replace(closed(1, 0.0, 0.1), latency=replace(closed(1, 1.0, 0.1).latency, count=0, percentiles={}, curve=()))),
        report(*(opened(float(rate), 0.01 + rate / 1000) for rate in range(1, 16))),
    ],
    ids=["nothing", "one run", "bare", "no response", "many"],
)
def test_reports_of_all_sizes_have_a_page(one: Report) -> None:
    text = page.render(one)
    assert Page(text).text
    numbers = re.findall(r'(?:[xy][12]?|[cr][xy]?|width|height|d)="([^"]*)"', text)
    assert numbers or not one.runs
    assert not [number for number in numbers if "nan" in number or "inf" in number]


def test_seconds_without_responses_are_gaps() -> None:
    run = closed(1, 10.0, 0.1)
    moments = [replace(one, completed=0, failed=3, p50=None, p99=None) if one.start == 3 else one for one in run.moments]
    timeline = charts(page.render(report(replace(run, moments=tuple(moments)))))[1]
    lines = [one for one in timeline.iter("path") if one.attrib["class"] == "line p50"]
    assert len(lines) == 2
    assert any(one.attrib["class"] == "bar failed" for one in timeline.iter("rect"))


def test_curves_of_at_most_eight_good_runs_are_drawn() -> None:
    runs: list[Run] = [closed(number, 10.0 * number, 0.1) for number in range(1, 13)]
    text = page.render(report(*runs))
    curves = [one for one in charts(text)[1].iter("path") if one.attrib["class"].startswith("line")]
    assert len(curves) == 8
    assert "8 of 12 loads are drawn." in Page(text).text
    some = page.render(report(closed(1, 100.0, 0.01), closed(2, 180.0, 0.012), unanswered(4)))
    drawn = {label.split("\n")[0] for chart in charts(some)[:2] for _, _, label in hits(chart)}
    assert drawn == {"concurrency 1", "concurrency 2"}
    assert charts(page.render(report(unanswered(4)))) == []
