"""Metrics of requests, counted in the event loop as plain numbers: every call pays for counting, only scrapes for the rest."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry

from triptych_serving.models.model import Model
from triptych_serving.observability.families import LABELS, Family, FamilyCollector, Labels, counter, gauge, histogram
from triptych_serving.rpc.call_context import CallContext, ModelUse, Observer
from triptych_serving.scheduling.step_stats import Histogram

KEEP_SECONDS = 600.0  # how long series outlive their model, so that its last counts are scraped
MAX_METHODS = 256  # far more than a server has
OTHER_METHOD = "_OTHER"
NO_MODEL: Labels = ("", "")  # labels of calls that found no model, or used several

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
TOKEN_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
METHOD_LABELS = ("method", *LABELS)
# Codes of the server's calls, shown from the start.
CODES = (
    "OK", "CANCELLED", "DEADLINE_EXCEEDED", "FAILED_PRECONDITION", "INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "UNAVAILABLE", "UNIMPLEMENTED",
)  # fmt: skip

COUNTERS = {
    "prompt_tokens": "Source tokens of successful inferences, without those from the response cache; images have tokens, too",
    "generation_tokens": "Tokens of translations, generated texts and completed images",
    "cache_hits": "Inferences answered from the response cache or by an equal request",
}
STAGES = {
    "preprocess": "Time to tokenize texts or decode images",
    "queue": "Time until the last row ran",
    "prefill": "Time from the queue to the first token, of translations and generated texts",
    "decode": "Time from the first token to the last, of translations and generated texts",
    "inference": "Time to run graphs, of all other tasks",
    "postprocess": "Time to convert the graphs' outputs to results",
}
STAGE_HISTOGRAMS = {stage: f"request_{stage}_time_seconds" for stage in STAGES}
FIRST_TOKEN, TOKEN = "time_to_first_token_seconds", "time_per_output_token_seconds"
HISTOGRAMS = {
    FIRST_TOKEN: "Time from arrival to the first token",
    TOKEN: "Decoding time per token of a text",
    **{STAGE_HISTOGRAMS[stage]: text for stage, text in STAGES.items()},
}


class MetricsObserver(Observer):
    """Count calls and inferences. Labels are names of methods, loaded models and codes only.

    Args:
        registry: its metrics are registered here.
        clock: monotonic seconds.
    """

    def __init__(
        self, registry: CollectorRegistry, models: Callable[[], Sequence[Model]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._models = models
        self._clock = clock
        self._active: dict[str, int] = {}  # calls, by method
        self._series: dict[Labels, ModelSeries] = {NO_MODEL: ModelSeries()}
        self._unloaded: dict[Labels, float] = {}  # time at which the model was first missed
        registry.register(FamilyCollector(lambda: _families({}, {}), lambda: _families(dict(self._active), dict(self._series))))

    def expect(self, methods: Iterable[str]) -> None:
        """Show methods from the start with 0: to Prometheus, a series that begins with 1 has no increase."""
        for method in methods:
            self._method_label(method)

    def on_start(self, call: CallContext) -> None:
        self._active[self._method_label(call.full_method)] += 1

    def on_use(self, call: CallContext, use: ModelUse) -> None:
        self._of((use.model, use.version)).add(call, use, self._method_label(call.full_method), self._clock())

    def on_end(self, call: CallContext) -> None:
        method = self._method_label(call.full_method)
        self._active[method] -= 1
        used = {(use.model, use.version) for use in call.uses}
        self._of(used.pop() if len(used) == 1 else NO_MODEL).end(method, call.code)

    def forget(self) -> None:
        """Drop the series of models that were unloaded KEEP_SECONDS ago."""
        now, loaded = self._clock(), {(model.name, str(model.version)) for model in self._models()}
        for labels in self._series.keys() - loaded - {NO_MODEL}:
            if now - self._unloaded.setdefault(labels, now) >= KEEP_SECONDS:
                del self._series[labels]
                del self._unloaded[labels]
        for labels in self._unloaded.keys() & loaded:
            del self._unloaded[labels]

    def _of(self, labels: Labels) -> "ModelSeries":
        if labels not in self._series:
            self._series[labels] = ModelSeries()
        return self._series[labels]

    def _method_label(self, method: str) -> str:
        if method in self._active:
            return method
        if len(self._active) >= MAX_METHODS:
            method = OTHER_METHOD
        if method not in self._active:
            self._active[method] = 0
            self._series[NO_MODEL].expect(method)
        return method


class MethodSeries:
    """Counts of one method of one model."""

    __slots__ = ("failures", "inferences", "rows", "seconds")

    def __init__(self) -> None:
        self.inferences = self.failures = self.rows = 0
        self.seconds = Histogram(SECONDS)


class Histograms(dict[str, Histogram]):
    """Histograms by name, made when they are needed."""

    def __missing__(self, name: str) -> Histogram:
        self[name] = Histogram(TOKEN_SECONDS if name == TOKEN else SECONDS)
        return self[name]


class ModelSeries:
    """Counts of one version of a model, written by the event loop, read by a scrape's thread. Unused series are missing."""

    def __init__(self) -> None:
        self.codes: dict[str, dict[str, int]] = {}  # of calls, by method
        self.methods: dict[str, MethodSeries] = {}
        self.counters: defaultdict[str, int] = defaultdict(int)
        self.histograms = Histograms()

    def expect(self, method: str) -> dict[str, int]:
        """Return a method's calls by code; they are shown from now on, with 0."""
        if method not in self.codes:
            self.codes[method] = dict.fromkeys(CODES, 0)
        return self.codes[method]

    def end(self, method: str, code: str) -> None:
        """Count a call that has ended."""
        codes = self.expect(method)
        codes[code] = codes.get(code, 0) + 1

    def add(self, call: CallContext, use: ModelUse, method: str, now: float) -> None:
        """Count an inference that has ended now. Failed ones are left out of the histograms, where they would mislead."""
        series = self.methods.get(method) or self.methods.setdefault(method, MethodSeries())
        series.inferences += 1
        if use.failed:
            series.failures += 1
            return
        series.rows += use.rows
        arrived = _arrival(call, use, now)
        series.seconds.add(now - arrived)
        self.counters["prompt_tokens"] += use.tokens_in
        self.counters["cache_hits"] += use.cached
        for stage, (start, end) in use.stages.items():
            if name := STAGE_HISTOGRAMS.get(stage):
                self.histograms[name].add(end - start if end > start else 0.0)
        if use.first_token:
            self._add_tokens(use, arrived)

    def _add_tokens(self, use: ModelUse, arrived: float) -> None:
        self.histograms[FIRST_TOKEN].add(use.first_token - arrived)
        self.counters["generation_tokens"] += use.tokens_out
        start, end = use.stages.get("decode", (0.0, 0.0))
        if use.rows and use.tokens_out and end:
            # The first token is the prefill's, and the last step ends the text without one: as many steps as tokens.
            self.histograms[TOKEN].add((end - start) * use.rows / use.tokens_out)


METHOD_COUNTERS = {
    "inferences": "Inferences: unary calls, messages of streams",
    "inference_failures": "Inferences that failed or were cancelled",
    "rows": "Texts or images of successful inferences, without those from the response cache",
}


def _families(active: Mapping[str, int], of: Mapping[Labels, ModelSeries]) -> Iterator[Family]:
    yield gauge("num_calls_active", "Calls in progress", {(m,): n for m, n in active.items()}, ("method",))
    calls = {(m, *k, c): n for k, s in of.items() for m, codes in tuple(s.codes.items()) for c, n in tuple(codes.items())}
    text = "Calls that have ended; with empty labels where no model was found"
    yield counter("requests", text, calls, (*METHOD_LABELS, "code"))
    methods = {(m, *k): series for k, s in of.items() for m, series in tuple(s.methods.items())}
    for name, text in METHOD_COUNTERS.items():
        member = name.removeprefix("inference_")
        yield counter(name, text, {k: getattr(series, member) for k, series in methods.items()}, METHOD_LABELS)
    seconds = {k: series.seconds for k, series in methods.items()}
    yield histogram("e2e_request_latency_seconds", "Time from arrival to response", seconds, METHOD_LABELS)
    for name, text in COUNTERS.items():
        yield counter(name, text, {k: s.counters[name] for k, s in of.items() if name in s.counters})
    for name, text in HISTOGRAMS.items():
        yield histogram(name, text, {k: s.histograms[name] for k, s in of.items() if name in s.histograms})


def _arrival(call: CallContext, use: ModelUse, now: float) -> float:
    """Return the arrival of a call, or of a message of a bidirectional stream."""
    if call.method_type != "bidi_stream":
        return call.arrived
    return min((start for start, _ in use.stages.values()), default=now)
