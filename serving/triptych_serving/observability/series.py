"""The metrics of requests, and what each model has of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from triptych_serving.observability.names import CODES

if TYPE_CHECKING:
    from triptych_serving.servicers.rpc import Rpc, Use

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
TOKEN_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
MODEL = ("model", "version")
Labels = tuple[str, str]

STAGES = {
    "preprocess": "Tokenizing texts, decoding images",
    "queue": "Waiting until the last row ran",
    "prefill": "From the queue to the first token; translations",
    "decode": "From the first token to the last; translations",
    "inference": "Running graphs; all but translations",
    "postprocess": "Making an answer of what the graphs gave",
}


class RequestMetrics:
    """Every metric that calls are counted in.

    Args:
        registry: where they are found.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"triptych_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...] = SECONDS) -> Histogram:
            return Histogram(f"triptych_{name}", text, labels, registry=registry, buckets=buckets)

        self.active = Gauge("triptych_num_calls_active", "Calls that have not ended", ("method",), registry=registry)
        self.requests = counter(
            "requests", "Calls that have ended; without a model where none was found", "method", *MODEL, "code"
        )
        self.inferences = counter("inferences", "Work of models: unary calls, messages of streams", "method", *MODEL)
        self.failures = counter("inference_failures", "Inferences that failed or that nobody waited for", "method", *MODEL)
        self.rows = counter("rows", "Texts or images of inferences that did not fail", "method", *MODEL)
        self.prompt_tokens = counter("prompt_tokens", "Source tokens of inferences that did not fail", *MODEL)
        self.generation_tokens = counter("generation_tokens", "Tokens of translations", *MODEL)
        self.cache_hits = counter("cache_hits", "Inferences whose answer was kept, or an equal request's", *MODEL)
        self.seconds = histogram("e2e_request_latency_seconds", "From arrival to answer", "method", *MODEL)
        self.first_token = histogram("time_to_first_token_seconds", "From arrival to the first token", *MODEL)
        self.token = histogram(
            "time_per_output_token_seconds", "Decoding, for each token of a text", *MODEL, buckets=TOKEN_SECONDS
        )
        self.stages = {name: histogram(f"request_{name}_time_seconds", text, *MODEL) for name, text in STAGES.items()}

    @property
    def of_models(self) -> tuple[Counter | Histogram, ...]:
        """Those that have a model's labels."""
        counters = (self.requests, self.inferences, self.failures, self.rows)
        tokens = (self.prompt_tokens, self.generation_tokens, self.cache_hits)
        return (*counters, *tokens, self.seconds, self.first_token, self.token, *self.stages.values())


class MethodSeries:
    """What one method has of one model."""

    def __init__(self, metrics: RequestMetrics, method: str, labels: Labels) -> None:
        self.inferences = metrics.inferences.labels(method, *labels)
        self.failures = metrics.failures.labels(method, *labels)
        self.rows = metrics.rows.labels(method, *labels)
        self.seconds = metrics.seconds.labels(method, *labels)


class ModelSeries:
    """What one version of a model has. The series are kept at hand: looking them up each time costs more than counting.

    Args:
        metrics: where they belong.
        labels: name and version.
    """

    def __init__(self, metrics: RequestMetrics, labels: Labels) -> None:
        self._metrics = metrics
        self._labels = labels
        self._codes: dict[str, dict[str, Counter]] = {}
        self._methods: dict[str, MethodSeries] = {}
        self._histograms: dict[str, Histogram] = {}
        self._counters: dict[str, Counter] = {}

    def expect(self, method: str) -> dict[str, Counter]:
        """Its calls by code; each is shown from now on, with 0."""
        if method not in self._codes:
            self._codes[method] = {code: self._metrics.requests.labels(method, *self._labels, code) for code in CODES}
        return self._codes[method]

    def end(self, method: str, code: str) -> None:
        """Count a call that has ended."""
        counter = self.expect(method).get(code) or self._metrics.requests.labels(method, *self._labels, code)
        counter.inc()

    def add(self, rpc: Rpc, use: Use, method: str, now: float) -> None:
        """Count an inference that has ended now; times of those that failed would say nothing of the others'."""
        series = self._methods.get(method) or self._begin(method)
        series.inferences.inc()
        if use.failed:
            series.failures.inc()
            return
        series.rows.inc(use.rows)
        arrived = _arrival(rpc, use, now)
        series.seconds.observe(now - arrived)
        self._counter("prompt_tokens").inc(use.tokens_in)
        self._counter("cache_hits").inc(use.cached)
        for stage, (start, end) in use.stages.items():
            if stage in self._metrics.stages:
                self._histogram(stage).observe(max(0.0, end - start))
        if use.first_token:
            self._add_tokens(use, arrived)

    def remove(self) -> None:
        """Drop every series."""
        for metric in self._metrics.of_models:
            metric.remove_by_labels(dict(zip(MODEL, self._labels, strict=True)))

    def _add_tokens(self, use: Use, arrived: float) -> None:
        self._histogram("first_token").observe(use.first_token - arrived)
        self._counter("generation_tokens").inc(use.tokens_out)
        start, end = use.stages.get("decode", (0.0, 0.0))
        if use.rows and use.tokens_out and end:
            # The last step of a text ends it and has no token; the first token is the prefill's. So there are as many steps.
            self._histogram("token").observe((end - start) * use.rows / use.tokens_out)

    def _begin(self, method: str) -> MethodSeries:
        self._methods[method] = MethodSeries(self._metrics, method, self._labels)
        return self._methods[method]

    def _counter(self, name: str) -> Counter:
        if name not in self._counters:
            counter: Counter = getattr(self._metrics, name)
            self._counters[name] = counter.labels(*self._labels)
        return self._counters[name]

    def _histogram(self, name: str) -> Histogram:
        if name not in self._histograms:
            histogram: Histogram = self._metrics.stages.get(name) or getattr(self._metrics, name)
            self._histograms[name] = histogram.labels(*self._labels)
        return self._histograms[name]


def _arrival(rpc: Rpc, use: Use, now: float) -> float:
    """Of a call, or of a stream's message."""
    if rpc.kind != "bidi_stream":
        return rpc.arrived
    return min((start for start, _ in use.stages.values()), default=now)
