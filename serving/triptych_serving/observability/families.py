"""Prometheus metric families, built from plain numbers when metrics are scraped."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from triptych_serving.scheduling.step_stats import Histogram

LABELS = ("model", "version")
Labels = tuple[str, ...]
Plain = TypeVar("Plain", GaugeMetricFamily, CounterMetricFamily)
Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily


def gauge(name: str, text: str, values: Mapping[Labels, float], labels: Labels = LABELS) -> GaugeMetricFamily:
    """Build `triptych_<name>`; `values` by the values of the labels."""
    return _filled(GaugeMetricFamily(f"triptych_{name}", text, labels=labels), values)


def counter(name: str, text: str, values: Mapping[Labels, float], labels: Labels = LABELS) -> CounterMetricFamily:
    """Build `triptych_<name>_total`."""
    return _filled(CounterMetricFamily(f"triptych_{name}", text, labels=labels), values)


def histogram(name: str, text: str, histograms: Mapping[Labels, Histogram], labels: Labels = LABELS) -> HistogramMetricFamily:
    """Build `triptych_<name>`."""
    family = HistogramMetricFamily(f"triptych_{name}", text, labels=labels)
    for key, one in histograms.items():
        family.add_metric(key, _buckets(one), one.sum)
    return family


class FamilyCollector(Collector):
    """Collect families from functions.

    Args:
        describe: yields every family without samples; the registry calls it once.
        collect: yields every family, at each scrape.
    """

    def __init__(self, describe: Callable[[], Iterable[Family]], collect: Callable[[], Iterable[Family]]) -> None:
        self._describe, self._collect = describe, collect

    def describe(self) -> Iterable[Family]:
        return self._describe()

    def collect(self) -> Iterable[Family]:
        return self._collect()


def _filled(family: Plain, values: Mapping[Labels, float]) -> Plain:
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _buckets(one: Histogram) -> list[tuple[str, float]]:
    """Return upper bounds, each with the cumulative count."""
    total, buckets = 0, []
    for bound, count in zip((*map(str, one.bounds), "+Inf"), one.counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets
