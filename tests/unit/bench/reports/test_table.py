"""The table for the terminal, and the formats of numbers."""

from dataclasses import replace
from typing import Any

import pytest

from triptych_bench.reports import table, units
from triptych_bench.results import Report, ServerCounts

from .sample import closed, full, opened, report, unanswered


def test_the_headline_comes_first() -> None:
    lines = table.render(report()).splitlines()
    assert lines[0] == "translate: en-de, version 3, int8, cpu"
    assert lines[1].startswith("max throughput 400/s   p50 at concurrency 8 20.0 ms")
    invalid = table.render(report(closed(1, 100.0, 0.01, valid=False), headline={"max_throughput": 0.0})).splitlines()
    assert invalid[1].startswith("throughput at concurrency 1 100/s")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_the_screen(width: int) -> None:
    long = replace(full(), valid=False, problem="a problem that takes a lot of words " * 8)
    text = table.render(report(closed(1, 100.0, 0.01), long), width)
    assert max(map(len, text.splitlines())) <= width
    assert "p99" in text
    assert ("memory" in text) is (width == 120)  # less important columns are dropped first


def test_columns_without_values_are_left_out() -> None:
    text = table.render(report(closed(1, 100.0, 0.01)))
    assert "goodput" not in text
    assert "BLEU" not in text
    assert "requests" not in text.splitlines()[5]  # with one input each, they are the inputs
    assert "requests" in table.render(report(closed(1, 100.0, 0.01, inputs_per_request=8, request_rate=12.5)))
    failed = table.render(report(unanswered(1)))
    assert "p50" not in failed
    assert "p99" not in failed


COUNTED = ServerCounts(source="ModelStatistics", requests=7_000, expected=7_000, cached=6_948)
FOUND, PROBE = opened(50.0, 0.05), opened(80.0, 0.5)


@pytest.mark.parametrize(
    ("content", "remark", "without"),
    [
        (
            report(closed(1, 100.0, 0.01), closed(64, 300.0, 0.5, steady=False)),
            "\n! concurrency 64: throughput and latency did not settle",
            "concurrency 1 !",
        ),
        (
            report(closed(1, 10.0, 0.01, steady=False, valid=False, problem="interrupted: measured until then")),
            "\n! concurrency 1: invalid: interrupted: measured until then",
            "did not settle",
        ),
        (
            report(closed(1, 10.0, 0.01, completed=98, failed={"UNAVAILABLE": 1, "INTERNAL": 1})),
            "2 of 100 requests failed (2.00 %): UNAVAILABLE 1, INTERNAL 1",
            "invalid",
        ),
        (
            report(replace(closed(1, 10.0, 0.01), latency=replace(closed(1, 10.0, 0.01).latency, count=99))),
            "99 requests are too few for p99",
            "cache",
        ),
        (report(FOUND, closed(1, 10.0, 0.01)), "", "too few"),
        # The failed probes of a successful search are no problem.
        (report(FOUND, PROBE), "", "80 requests/s: "),
        (report(FOUND, PROBE, headline={"max_rate": 0.0}), "! No rate was confirmed", "80 requests/s: "),
        (report(FOUND, PROBE, headline={"max_rate": 49.0}), "max rate 49.0/s", "No rate was confirmed"),
        (report(PROBE), "80 requests/s: invalid: over the latency limit", "cache"),
        (
            report(FOUND, opened(60.0, 0.05, valid=False, problem="the generator was late")),
            "60 requests/s: invalid: the generator was late",
            "cache",
        ),
        (report(unanswered(1)), "no request succeeded", "cache"),
        (
            report(closed(1, 100.0, 0.01, counted=COUNTED)),
            "! concurrency 1: 6,948 of 7,000 responses came from the server's cache",
            "invalid",
        ),
        (Report(task="translate"), "! No load was measured.", "cache"),
        (report(inputs={"source": "generated from the model's metadata (random)"}), "! The inputs are random", "cache"),
        (report(), "", "inputs are random"),
    ],
)
def test_remarks(content: Report, remark: str, without: str) -> None:
    text = table.render(content)
    assert remark in text
    assert without not in text


@pytest.mark.parametrize(
    ("shown", "value", "text"),
    [
        (units.duration, None, "–"),
        (units.duration, 0.0, "0"),
        (units.duration, 0.00000123, "1.23 µs"),
        (units.duration, 0.00085, "850 µs"),
        (units.duration, 0.0009996, "1.00 ms"),
        (units.duration, 0.0123, "12.3 ms"),
        (units.duration, 0.999, "999 ms"),
        (units.duration, 0.9996, "1.00 s"),
        (units.duration, 1234.5, "1,234 s"),
        (units.size, 0, "0 B"),
        (units.size, 1023, "1,023 B"),
        (units.size, 1024, "1.00 KiB"),
        (units.size, 300 << 20, "300 MiB"),
        (units.size, None, "–"),
    ],
)
def test_durations_and_sizes(shown: Any, value: float | None, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("p90_seconds", 0.0123, ("p90", "12.3 ms")),
        ("max_rate", 123.4, ("max rate", "123/s")),
        ("max_throughput", 123.4, ("max throughput", "123/s")),
        ("inputs_per_second", 1234.5, ("inputs", "1,234/s")),
        ("memory_bytes", 3 << 30, ("memory", "3.00 GiB")),
        ("confidence", 0.995, ("confidence", "99.5 %")),
        ("BLEU", 33.25, ("BLEU", "33.2")),
    ],
)
def test_headline_figures_have_units(name: str, value: float, text: tuple[str, str]) -> None:
    assert units.named(name, value) == text
