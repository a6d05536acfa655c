"""Metrics, traces and logs of a real server: what it says must be what was asked of it."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from triptych.v1 import image_classification_pb2, image_classification_pb2_grpc, translation_pb2, translation_pb2_grpc
from triptych.version import __version__

from ..fixtures.encoders import write_every_bundle
from ..fixtures.toy import SOURCE, SOURCES, TARGET, copy_bundle
from .support.messages import RED, ask
from .support.processes import PATIENCE_SECONDS, ServerProcess
from .support.telemetry import Collector, Page, Scrape, attributes_of, fetch

TRACE, PARENT, REQUEST_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "a-request-of-mine"
TRANSLATE = "triptych.v1.TranslationService/Translate"
STREAM = "triptych.v1.TranslationService/TranslateStream"
IMAGES = "triptych.v1.ImageClassificationService/ClassifyImage"
IMAGE_STREAM = "triptych.v1.ImageClassificationService/ClassifyImageStream"
TOY = {"model": "toy", "version": "1"}
LABELS = {"method", "model", "version", "code", "le"}
OF_PROMETHEUS = {"instance", "job"}  # labels that it adds
ABSENT = {
    "triptych_gpu_memory_limit_bytes": {"device"},
    "triptych_gpu_memory_reserved_bytes": {"device"},
    "triptych_model_gpu_memory_bytes": {"model", "version", "device"},
    "triptych_prefix_cache_bytes": {"model", "version"},
    **{f"triptych_prefix_cache_{name}_total": {"model", "version"} for name in ("queries", "hits", "evictions")},
}  # samples that there are with GPUs, or with a model that continues texts, alone
MANY = 3

DEPLOY = Path(__file__).parents[2] / "serving" / "deploy"
DASHBOARD = DEPLOY / "grafana" / "triptych.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
GUIDE = DEPLOY.parent / "docs" / "observability.md"

STRING = re.compile(r'"[^"]*"')
METRIC = re.compile(r"\b(?:triptych|process)_\w+")
SELECTOR = re.compile(r"\b((?:triptych|process)_\w+)\{([^}]*)\}")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
GROUPING = re.compile(r"\bby\s*\(([^)]*)\)")


@dataclass
class Observed:
    """A server that has been asked a known number of things, and all that it said of them."""

    before: Scrape
    after: Scrape
    page: Page
    unreadable: Page  # for an Accept header that prometheus_client cannot read
    spans: list[Any]
    resources: list[dict[str, str]]
    lines: list[dict[str, Any]]
    seconds: tuple[float, float]  # of the epoch: when the first call was sent, and when the last one was answered

    def more(self, name: str, **labels: str) -> float:
        """Compute the increase of a metric's value."""
        before, after = self.before.value(name, **labels), self.after.value(name, **labels)
        assert before is not None
        assert after is not None
        return after - before

    def calls(self) -> dict[tuple[str, str, str], float]:
        """Method, model, code -> number, of what the test asked for."""
        return {
            (labels["method"], labels["model"], labels["code"]): value
            for labels, value in ((dict(series), value) for series, value in self.after.series("requests_total").items())
        }

    def traced(self, method: str) -> tuple[Any, list[Any]]:
        """The one call of a method that had REQUEST_ID: its span and its children."""
        [server] = [
            span
            for span in self.spans
            if span.name == method and attributes_of(span).get("triptych.request_id") == f"{REQUEST_ID}-{method}"
        ]
        return server, [span for span in self.spans if span.parent_span_id == server.span_id]


def metadata(method: str) -> list[tuple[str, str]]:
    return [("x-request-id", f"{REQUEST_ID}-{method}"), ("traceparent", f"00-{TRACE}-{PARENT}-01")]


def ask_everything(channel: grpc.Channel, over: threading.Event) -> None:
    """Every task, and some mistakes."""
    translation = translation_pb2_grpc.TranslationServiceStub(channel)
    for _ in range(MANY):
        translation.Translate(translation_pb2.TranslateRequest(contents=SOURCES[:2]))
    answer = translation.Translate(translation_pb2.TranslateRequest(contents=[SOURCE]), metadata=metadata(TRANSLATE))
    assert answer.translations[0].translated_text == TARGET
    list(translation.TranslateStream(translation_pb2.TranslateStreamRequest(contents=[SOURCE]), metadata=metadata(STREAM)))
    ask(channel, "ScoreTranslations", pairs=[{"source": SOURCE, "target": TARGET}])
    ask(channel, "FillMask", contents=["one [MASK]"])
    ask(channel, "EmbedText", contents=["one"], model="fill-mask")
    ask(channel, "ClassifyText", inputs=[{"text": "one"}])
    ask(channel, "ClassifyTokens", contents=["anna lives in paris"])
    ask(channel, "AnswerQuestion", inputs=[{"question": "where", "context": "anna lives in paris"}])
    ask_images(channel)
    make_mistakes(channel, over)


def ask_images(channel: grpc.Channel) -> None:
    images = image_classification_pb2_grpc.ImageClassificationServiceStub(channel)
    ask(channel, "ClassifyImage", metadata(IMAGES), images=[RED] * 3)
    messages = [image_classification_pb2.ClassifyImageStreamRequest(image_id=number, image=RED) for number in range(4)]
    messages.append(image_classification_pb2.ClassifyImageStreamRequest(image_id=9, image=b"not an image"))
    assert len(list(images.ClassifyImageStream(iter(messages), metadata=metadata(IMAGE_STREAM)))) == 5


def make_mistakes(channel: grpc.Channel, over: threading.Event) -> None:
    """Send bad requests, and cancel a stream whose requests do not end before `over` is set."""
    translation = translation_pb2_grpc.TranslationServiceStub(channel)
    for number in range(MANY):
        with pytest.raises(grpc.RpcError):
            translation.Translate(translation_pb2.TranslateRequest(contents=[SOURCE], model=f"made-up-{number}"))
        with pytest.raises(grpc.RpcError):
            channel.unary_unary(f"/made.up.Service{number}/Method")(b"")
    with pytest.raises(grpc.RpcError):
        translation.Translate(translation_pb2.TranslateRequest(contents=[""]))

    def one_and_wait() -> Iterator[image_classification_pb2.ClassifyImageStreamRequest]:
        yield image_classification_pb2.ClassifyImageStreamRequest(image_id=1, image=RED)
        over.wait(PATIENCE_SECONDS)

    open_stream = image_classification_pb2_grpc.ImageClassificationServiceStub(channel).ClassifyImageStream(one_and_wait())
    next(open_stream)
    open_stream.cancel()


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    repository = tmp_path_factory.mktemp("models")
    write_every_bundle(repository)
    copy_bundle(repository)
    flags = ("--log-format", "json", "--access-log", "--log-level", "debug", "--otlp-endpoint")
    with Collector() as collector:
        with ServerProcess(repository, *flags, collector.address) as server:
            before = Scrape(server.metrics_address)
            first = time.time()
            with grpc.insecure_channel(server.address) as channel:
                over = threading.Event()
                ask_everything(channel, over)
                health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
                seconds = first, time.time()
                after = settled(server)
                over.set()
            page = fetch(server.metrics_address, "/metrics", Accept="application/openmetrics-text")
            unreadable = fetch(server.metrics_address, "/metrics", Accept='application/openmetrics-text; version="1.0.0"')
        lines = [json.loads(line) for line in server.log.splitlines()]
        return Observed(before, after, page, unreadable, collector.spans, collector.resources, lines, seconds)


def settled(server: ServerProcess) -> Scrape:
    """Once no call is active any more: the server hears of a cancellation a moment later."""
    while (scrape := Scrape(server.metrics_address)).series("num_calls_active"):
        time.sleep(0.02)
    return scrape


def test_before_the_first_call_everything_is_zero(observed: Observed) -> None:
    before = observed.before
    assert before.series("requests_total") == before.series("inferences_total") == before.series("num_calls_active") == {}
    assert before.value("requests_total", method=TRANSLATE, model="", version="", code="INTERNAL") == 0
    assert before.value("num_requests_waiting", **TOY) == 0
    assert before.value("requests_rejected_total", **TOY) == before.value("requests_cancelled_total", **TOY) == 0


def test_calls_are_counted(observed: Observed) -> None:
    service = "triptych.v1.{0}Service/{1}".format
    assert observed.calls() == {
        (TRANSLATE, "toy", "OK"): MANY + 1,
        (TRANSLATE, "", "NOT_FOUND"): MANY,
        (TRANSLATE, "toy", "INVALID_ARGUMENT"): 1,
        (STREAM, "toy", "OK"): 1,
        (service("Translation", "ScoreTranslations"), "toy", "OK"): 1,
        (service("FillMask", "FillMask"), "fill-mask", "OK"): 1,
        (service("Embedding", "EmbedText"), "fill-mask", "OK"): 1,
        (service("TextClassification", "ClassifyText"), "text-classification", "OK"): 1,
        (service("TokenClassification", "ClassifyTokens"), "token-classification", "OK"): 1,
        (service("QuestionAnswering", "AnswerQuestion"), "question-answering", "OK"): 1,
        (IMAGES, "image-classification", "OK"): 1,
        (IMAGE_STREAM, "image-classification", "OK"): 1,
        (IMAGE_STREAM, "image-classification", "CANCELLED"): 1,
        ("grpc.health.v1.Health/Check", "", "OK"): 1,
    }


def test_work_is_counted(observed: Observed) -> None:
    after, image = observed.after, {"model": "image-classification", "version": "1"}
    assert after.value("inferences_total", method=TRANSLATE, **TOY) == MANY + 2
    assert after.value("inference_failures_total", method=TRANSLATE, **TOY) == 1
    assert after.value("rows_total", method=TRANSLATE, **TOY) == 2 * MANY + 1
    assert after.value("rows_total", method=IMAGES, **image) == 3
    assert after.value("rows_total", method=IMAGE_STREAM, **image) == 5
    assert after.value("inference_failures_total", method=IMAGE_STREAM, **image) == 1


def test_times_are_measured(observed: Observed) -> None:
    after, translations = observed.after, MANY + 2  # the stream is one, too
    assert after.value("e2e_request_latency_seconds_count", method=TRANSLATE, **TOY) == MANY + 1
    for name in ("time_to_first_token_seconds", "time_per_output_token_seconds", "request_decode_time_seconds"):
        assert after.value(f"{name}_count", **TOY) == translations
        assert (after.value(f"{name}_sum", **TOY) or 0) > 0
    assert after.value("request_queue_time_seconds_count", **TOY) == translations + 1  # scores wait as well
    assert after.value("request_inference_time_seconds_count", **TOY) == 1
    elapsed = observed.seconds[1] - observed.seconds[0]
    assert 0 < (after.value("e2e_request_latency_seconds_sum", method=TRANSLATE, **TOY) or 0) < elapsed


def test_engines_are_measured(observed: Observed) -> None:
    after = observed.after
    steps = observed.more("step_duration_seconds_count", **TOY)
    assert steps == observed.more("batch_size_count", **TOY)
    assert steps > len(TARGET.split())
    assert observed.more("batch_size_sum", **TOY) >= (after.value("generation_tokens_total", **TOY) or 0) > 0
    assert observed.more("batch_size_sum", model="image-classification", version="1") == 3 + 4 + 1
    assert (after.value("model_weights_bytes", **TOY) or 0) > 100_000
    assert (after.value("model_cache_bytes", **TOY) or 0) > 1_000_000


def test_labels_are_names_that_the_server_knows(observed: Observed) -> None:
    infos = ("triptych_model_info", "triptych_build_info")
    own = [(name, dict(labels)) for name, labels in observed.after.samples if name.startswith("triptych_")]
    assert {label for name, labels in own for label in labels if name not in infos} == LABELS
    values = {value for _, labels in own for value in labels.values()}
    assert not [value for value in values if "made" in value]


def test_the_process_is_measured(observed: Observed) -> None:
    names = {"process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"}
    assert names <= observed.after.names
    assert observed.after.value("build_info", version=__version__) == 1


def test_openmetrics_is_spoken(observed: Observed) -> None:
    assert observed.page.content_type.startswith("application/openmetrics-text")
    assert observed.page.text.endswith("# EOF\n")
    assert (observed.unreadable.status, observed.unreadable.content_type.split(";")[0]) == (200, "text/plain")


def dashboard_expressions() -> Iterator[str]:
    """Yield the PromQL expressions of all panels and variables."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def alert_expressions() -> Iterator[str]:
    """Yield the PromQL expressions of all alert rules."""
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]


def metrics_of_guide() -> set[str]:
    """Return the metrics in the table of the guide."""
    lines = GUIDE.read_text(encoding="utf-8").splitlines()
    return {metric for line in lines if line.startswith("| `triptych_") for metric in METRIC.findall(line.partition(" | ")[0])}


def metrics_in(expression: str) -> set[str]:
    """Return the names of the time series in an expression."""
    return set(METRIC.findall(STRING.sub('""', expression)))


def labels_in(expression: str) -> Iterator[tuple[str, str]]:
    """Yield each pair of a metric and a label that selects or groups its series."""
    bare = STRING.sub('""', expression)
    for metric, matchers in SELECTOR.findall(bare):
        yield from ((metric, label) for label in MATCHER.findall(matchers))
    for labels in GROUPING.findall(bare):
        yield from ((metric, label.strip()) for metric in metrics_in(bare) for label in labels.split(","))


@pytest.mark.parametrize("expressions", [dashboard_expressions, alert_expressions])
def test_dashboard_and_alerts_ask_for_what_is_there(observed: Observed, expressions: Callable[[], Iterator[str]]) -> None:
    assert {name.removesuffix("_total") for name in ABSENT} <= {family.name for family in observed.after.families}
    labels = {name: set(known) for name, known in ABSENT.items()}
    for name, pairs in observed.after.samples:
        labels.setdefault(name, set()).update(label for label, _ in pairs)
    asked = [(metric, expression) for expression in expressions() for metric in metrics_in(expression)]
    assert len({metric for metric, _ in asked}) > 5
    assert not [(metric, expression) for metric, expression in asked if metric not in labels]
    unknown = [
        (metric, label)
        for expression in expressions()
        for metric, label in labels_in(expression)
        if label not in labels[metric] | OF_PROMETHEUS
    ]
    assert not unknown


def test_the_guide_explains_every_metric(observed: Observed) -> None:
    families = [family for family in observed.after.families if family.name.startswith("triptych_")]
    assert metrics_of_guide() == {f"{family.name}_total" if family.type == "counter" else family.name for family in families}


def test_the_dashboard_shows_every_metric(observed: Observed) -> None:
    shown = {
        metric.removesuffix(end)
        for e in dashboard_expressions()
        for metric in metrics_in(e)
        for end in ("_bucket", "_sum", "_count")
    }
    there = {family.name for family in observed.after.families if family.name.startswith("triptych_")}
    assert {name for name in there if not {name, f"{name}_total"} & shown} == {"triptych_build_info"}


@pytest.mark.parametrize("method", [TRANSLATE, STREAM])
def test_a_translation_is_traced(observed: Observed, method: str) -> None:
    server, children = observed.traced(method)
    assert (server.trace_id.hex(), server.parent_span_id.hex()) == (TRACE, PARENT)
    assert {child.trace_id.hex() for child in children} == {TRACE}
    names = {"preprocess", "queue", "prefill", "decode"}
    assert {child.name for child in children} == (names | {"postprocess"} if method == TRANSLATE else names)
    times = {child.name: (child.start_time_unix_nano, child.end_time_unix_nano) for child in children}
    first, last = (round(seconds * 1e9) for seconds in observed.seconds)
    slack = 1_000_000  # two clocks, read one after the other
    assert first - slack <= server.start_time_unix_nano <= server.end_time_unix_nano <= last + slack
    for start, end in times.values():
        assert server.start_time_unix_nano - slack <= start <= end <= server.end_time_unix_nano + slack
    assert times["preprocess"][0] <= times["queue"][0] <= times["prefill"][0] <= times["decode"][0]
    assert times["prefill"][1] == times["decode"][0]
    about = attributes_of(server)
    assert about["rpc.system.name"] == "grpc"
    assert about["rpc.method"] == method
    assert about["rpc.response.status_code"] == "OK"
    assert about["triptych.model.name"] == "toy"


def test_images_are_traced(observed: Observed) -> None:
    _, children = observed.traced(IMAGES)
    assert {"preprocess", "queue", "inference"} <= {child.name for child in children}
    _, messages = observed.traced(IMAGE_STREAM)
    assert [child.name for child in messages].count("inference") == 4


def test_the_server_names_itself_to_the_collector(observed: Observed) -> None:
    assert observed.resources
    assert all(resource["service.name"] == "triptych" for resource in observed.resources)
    assert all(resource["service.version"] == __version__ for resource in observed.resources)


def test_every_call_is_a_line(observed: Observed) -> None:
    calls = [line for line in observed.lines if line["logger"] == "triptych_serving.access"]
    counted: dict[tuple[str, str, str], float] = {}
    for line in calls:
        key = line["method"], line.get("model", ""), line["code"]
        counted[key] = counted.get(key, 0) + 1
    assert counted == observed.calls()
    [mine] = [line for line in calls if line["request_id"] == f"{REQUEST_ID}-{TRANSLATE}"]
    assert (mine["trace_id"], mine["rows"], mine["level"]) == (TRACE, 1, "info")
    assert mine["seconds"] > 0
    assert mine["tokens_out"] > 0
    assert mine["peer"].startswith("ipv4:127.0.0.1:")
