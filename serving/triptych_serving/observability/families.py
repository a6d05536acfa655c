"""Metrics that are made when somebody asks for them."""

from collections.abc import Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from triptych_serving.scheduling.step_stats import Histogram

LABELS = ("model", "version")
Labels = tuple[str, ...]
Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily


def gauge(name: str, text: str, values: Mapping[Labels, float], labels: Labels = LABELS) -> GaugeMetricFamily:
    """`triptych_<name>`; values by the values of labels."""
    family = GaugeMetricFamily(f"triptych_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def counter(name: str, text: str, values: Mapping[Labels, float], labels: Labels = LABELS) -> CounterMetricFamily:
    """`triptych_<name>_total`."""
    family = CounterMetricFamily(f"triptych_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def histogram(name: str, text: str, tallies: Mapping[Labels, Histogram], labels: Labels = LABELS) -> HistogramMetricFamily:
    """`triptych_<name>`."""
    family = HistogramMetricFamily(f"triptych_{name}", text, labels=labels)
    for key, tally in tallies.items():
        family.add_metric(key, _buckets(tally), tally.sum)
    return family


def _buckets(tally: Histogram) -> list[tuple[str, float]]:
    """Upper ends, each with the number of values up to there."""
    total, buckets = 0, []
    for bound, count in zip((*map(str, tally.bounds), "+Inf"), tally.counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets
