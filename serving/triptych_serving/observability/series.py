"""What calls have come to, as plain numbers: counting is in every call's way, showing them is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector

from triptych_serving.observability.families import LABELS, Family, Labels, counter, gauge, histogram
from triptych_serving.observability.names import CODES
from triptych_serving.scheduling.step_stats import Histogram

if TYPE_CHECKING:
    from triptych_serving.rpc.call_context import CallContext, ModelUse

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
TOKEN_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
METHOD = ("method", *LABELS)

COUNTERS = {
    "prompt_tokens": "Source tokens of inferences that did not fail",
    "generation_tokens": "Tokens of translations",
    "cache_hits": "Inferences whose answer was kept, or an equal request's",
}
STAGES = {
    "preprocess": "Tokenizing texts, decoding images",
    "queue": "Waiting until the last row ran",
    "prefill": "From the queue to the first token; translations",
    "decode": "From the first token to the last; translations",
    "inference": "Running graphs; all but translations",
    "postprocess": "Making an answer of what the graphs gave",
}
FIRST_TOKEN, TOKEN = "time_to_first_token_seconds", "time_per_output_token_seconds"
HISTOGRAMS = {
    FIRST_TOKEN: "From arrival to the first token",
    TOKEN: "Decoding, for each token of a text",
    **{f"request_{stage}_time_seconds": text for stage, text in STAGES.items()},
}
OF_STAGE = {stage: f"request_{stage}_time_seconds" for stage in STAGES}


class MethodSeries:
    """What one method has of one model."""

    __slots__ = ("failures", "inferences", "rows", "seconds")

    def __init__(self) -> None:
        self.inferences = self.failures = self.rows = 0
        self.seconds = Histogram(SECONDS)


class ModelSeries:
    """What one version of a model has. The event loop writes it, a scrape's thread reads it. What never was is not there."""

    def __init__(self) -> None:
        self.codes: dict[str, dict[str, int]] = {}  # of calls, by method
        self.methods: dict[str, MethodSeries] = {}
        self.counters: dict[str, int] = {}
        self.histograms: dict[str, Histogram] = {}

    def expect(self, method: str) -> dict[str, int]:
        """Its calls by code; each is shown from now on, with 0."""
        if method not in self.codes:
            self.codes[method] = dict.fromkeys(CODES, 0)
        return self.codes[method]

    def end(self, method: str, code: str) -> None:
        """Count a call that has ended."""
        codes = self.expect(method)
        codes[code] = codes.get(code, 0) + 1

    def add(self, rpc: CallContext, use: ModelUse, method: str, now: float) -> None:
        """Count an inference that has ended now; times of those that failed would say nothing of the others'."""
        series = self.methods.get(method) or self.methods.setdefault(method, MethodSeries())
        series.inferences += 1
        if use.failed:
            series.failures += 1
            return
        series.rows += use.rows
        arrived = _arrival(rpc, use, now)
        series.seconds.add(now - arrived)
        self._count("prompt_tokens", use.tokens_in)
        self._count("cache_hits", use.cached)
        for stage, (start, end) in use.stages.items():
            if stage in OF_STAGE:
                self._observe(OF_STAGE[stage], max(0.0, end - start))
        if use.first_token:
            self._add_tokens(use, arrived)

    def _add_tokens(self, use: ModelUse, arrived: float) -> None:
        self._observe(FIRST_TOKEN, use.first_token - arrived)
        self._count("generation_tokens", use.tokens_out)
        start, end = use.stages.get("decode", (0.0, 0.0))
        if use.rows and use.tokens_out and end:
            # The last step of a text ends it and has no token; the first token is the prefill's. So there are as many steps.
            self._observe(TOKEN, (end - start) * use.rows / use.tokens_out)

    def _count(self, name: str, more: int) -> None:
        self.counters[name] = self.counters.get(name, 0) + more

    def _observe(self, name: str, value: float) -> None:
        tally = self.histograms.get(name)
        if tally is None:
            tally = self.histograms[name] = Histogram(TOKEN_SECONDS if name == TOKEN else SECONDS)
        tally.add(value)


class RequestCollector(Collector):
    """Shows them.

    Args:
        active: calls that have not ended, by method.
        series: by model and version; of calls without a model by ("", "").
    """

    def __init__(self, active: Mapping[str, int], series: Mapping[Labels, ModelSeries]) -> None:
        self._active, self._series = active, series

    def describe(self) -> Iterator[Family]:
        """Every metric, without samples."""
        return _families({}, {})

    def collect(self) -> Iterator[Family]:
        """Every metric as it is now."""
        return _families(dict(self._active), dict(self._series))


def _families(active: Mapping[str, int], of: Mapping[Labels, ModelSeries]) -> Iterator[Family]:
    yield gauge("num_calls_active", "Calls that have not ended", {(m,): n for m, n in active.items()}, ("method",))
    calls = {(m, *k, c): n for k, s in of.items() for m, codes in tuple(s.codes.items()) for c, n in tuple(codes.items())}
    text = "Calls that have ended; without a model where none was found"
    yield counter("requests", text, calls, (*METHOD, "code"))
    methods = {(m, *k): series for k, s in of.items() for m, series in tuple(s.methods.items())}
    for name, text, value in _OF_METHODS:
        yield counter(name, text, {k: value(series) for k, series in methods.items()}, METHOD)
    seconds = {k: series.seconds for k, series in methods.items()}
    yield histogram("e2e_request_latency_seconds", "From arrival to answer", seconds, METHOD)
    for name, text in COUNTERS.items():
        yield counter(name, text, {k: s.counters[name] for k, s in of.items() if name in s.counters})
    for name, text in HISTOGRAMS.items():
        yield histogram(name, text, {k: s.histograms[name] for k, s in of.items() if name in s.histograms})


_OF_METHODS: tuple[tuple[str, str, Callable[[MethodSeries], int]], ...] = (
    ("inferences", "Work of models: unary calls, messages of streams", lambda series: series.inferences),
    ("inference_failures", "Inferences that failed or that nobody waited for", lambda series: series.failures),
    ("rows", "Texts or images of inferences that did not fail", lambda series: series.rows),
)


def _arrival(rpc: CallContext, use: ModelUse, now: float) -> float:
    """Of a call, or of a stream's message."""
    if rpc.method_type != "bidi_stream":
        return rpc.arrived
    return min((start for start, _ in use.stages.values()), default=now)
