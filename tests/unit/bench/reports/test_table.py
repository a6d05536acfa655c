"""The terminal's table."""

from dataclasses import replace

import pytest

from triptych_bench.reports import table, units
from triptych_bench.results import Report, ServerCounts

from .sample import closed, full, opened, report, unanswered


def test_the_headline_comes_first() -> None:
    lines = table.render(report()).splitlines()
    assert lines[0] == "translate: en-de, version 3, int8, cpu"
    assert lines[1].startswith("max throughput 400/s   p50 at concurrency 8 20.0 ms")


def test_without_a_valid_run_the_headline_is_that_of_the_best_one() -> None:
    lines = table.render(report(closed(1, 100.0, 0.01, valid=False), headline={"max_throughput": 0.0})).splitlines()
    assert lines[1].startswith("throughput at concurrency 1 100/s")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_are_no_longer_than_the_screen(width: int) -> None:
    long = replace(full(), valid=False, problem="a problem that takes a lot of words " * 8)
    text = table.render(report(closed(1, 100.0, 0.01), long), width)
    assert max(map(len, text.splitlines())) <= width
    assert "p99" in text


def test_columns_that_matter_least_go_first() -> None:
    wide, narrow = table.render(report(full())), table.render(report(full()), 80)
    assert "memory" in wide
    assert "memory" not in narrow
    assert "p50" in narrow


def test_columns_without_values_are_left_out() -> None:
    text = table.render(report(closed(1, 100.0, 0.01)))
    assert "goodput" not in text
    assert "BLEU" not in text
    assert "requests" not in text.splitlines()[5]  # one input each: they are the inputs
    assert "requests" in table.render(report(closed(1, 100.0, 0.01, inputs_per_request=8, request_rate=12.5)))


def test_runs_that_do_not_count_are_marked() -> None:
    text = table.render(report(closed(1, 100.0, 0.01), closed(64, 300.0, 0.5, steady=False)))
    assert "concurrency 64 !" in text
    assert "\n! concurrency 64: throughput and latency did not settle" in text
    assert "concurrency 1 !" not in text


def test_failures_are_counted_by_status() -> None:
    text = table.render(report(closed(1, 10.0, 0.01, completed=98, failed={"UNAVAILABLE": 1, "INTERNAL": 1})))
    assert "2 of 100 requests failed (2.00 %): UNAVAILABLE 1, INTERNAL 1" in text


def test_few_requests_are_too_few_for_a_tail() -> None:
    run = closed(1, 10.0, 0.01)
    few = replace(run, latency=replace(run.latency, count=99))
    assert "99 requests are too few for p99" in table.render(report(few))
    assert "too few" not in table.render(report(run))


def test_a_search_is_not_warned_of_its_own_probes() -> None:
    found, probe = opened(50.0, 0.05), opened(80.0, 0.5)
    assert "80 requests/s: " not in table.render(report(found, probe))
    assert "80 requests/s: invalid: over the latency limit" in table.render(report(probe))
    late = opened(60.0, 0.05, valid=False, problem="the generator was late")
    assert "60 requests/s: invalid: the generator was late" in table.render(report(found, late))


def test_a_run_without_answers_has_no_latency() -> None:
    text = table.render(report(unanswered(1)))
    assert "p50" not in text
    assert "p99" not in text
    assert "no request succeeded" in text


def test_answers_from_a_cache_are_said_to_be_that() -> None:
    counted = ServerCounts(source="ModelStatistics", requests=7_000, expected=7_000, cached=6_948)
    text = table.render(report(closed(1, 100.0, 0.01, counted=counted)))
    assert "! concurrency 1: 6,948 of 7,000 responses came from the server's cache" in text
    assert "cache" not in table.render(report(full()))


def test_nothing_measured_is_said() -> None:
    assert table.render(Report(task="translate")).endswith("! No load was measured.")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "–"),
        (0.0, "0"),
        (0.00000123, "1.23 µs"),
        (0.00085, "850 µs"),
        (0.0009996, "1.00 ms"),
        (0.0123, "12.3 ms"),
        (0.999, "999 ms"),
        (0.9996, "1.00 s"),
        (1234.5, "1,234 s"),
    ],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert units.duration(seconds) == shown


@pytest.mark.parametrize(
    ("name", "value", "shown"),
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
def test_headlines_have_their_units(name: str, value: float, shown: tuple[str, str]) -> None:
    assert units.named(name, value) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (1023, "1,023 B"), (1024, "1.00 KiB"), (300 << 20, "300 MiB"), (None, "–")]
)
def test_sizes(count: float | None, shown: str) -> None:
    assert units.size(count) == shown


def test_random_inputs_are_said_to_be_random() -> None:
    random = report(inputs={"source": "made up from the model's metadata (random)"})
    assert "! The inputs are random" in table.render(random)
    assert "inputs are random" not in table.render(report())
