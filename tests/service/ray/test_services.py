"""The services behind Ray's proxy."""

import time
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from tritonclient import grpc as triton

from triptych.v1 import image_classification_pb2, translation_pb2
from triptych.v1.image_classification_pb2_grpc import ImageClassificationServiceStub
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_client import Client

from ...fixtures.encoders import write_image_bundle
from ...fixtures.toy import SOURCE, SOURCES, TARGET, TARGETS, copy_bundle

pytest.importorskip("ray")

from ..support.messages import RED, details_of, failure
from ..support.processes import run_command
from .cluster import Cluster, running  # after: it needs Ray's programs

pytestmark = pytest.mark.full

Request = translation_pb2.TranslateRequest
StreamRequest = translation_pb2.TranslateStreamRequest


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    models = tmp_path_factory.mktemp("models")
    copy_bundle(models)
    write_image_bundle(models)
    scale = {"min_replicas": 1, "max_replicas": 1}
    with running(
        tmp_path_factory.mktemp("ray"), models, ray_actor_options={"num_cpus": 1}, autoscaling_config=scale
    ) as cluster:
        yield cluster


@pytest.fixture
def channel(cluster: Cluster) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(cluster.address) as channel:
        yield channel


@pytest.fixture
def translation(channel: grpc.Channel) -> TranslationServiceStub:
    return TranslationServiceStub(channel)


def trailers(call: grpc.Call) -> dict[str, str | bytes]:
    return dict(call.trailing_metadata())


def test_translations_return_the_request_id(translation: TranslationServiceStub) -> None:
    metadata = (("x-request-id", "good-1"),)
    response, call = translation.Translate.with_call(Request(contents=[SOURCE]), metadata=metadata)
    assert response.translations[0].translated_text == TARGET
    assert (response.model, response.model_version) == ("toy", "1")
    stream = translation.TranslateStream(StreamRequest(contents=[SOURCE]), metadata=metadata)
    events = list(stream)
    assert "".join(event.piece.text for event in events) == TARGET
    assert events[-1].summary.model == "toy"
    assert trailers(call)["x-request-id"] == trailers(stream)["x-request-id"] == "good-1"


def test_the_client(cluster: Cluster) -> None:
    with Client(cluster.address) as client:
        assert [str(found.text) for found in client.translate_many(SOURCES)] == TARGETS
        assert {model.name for model in client.models()} == {"toy", "image-classification"}
        assert client.is_ready("triptych.v1.TranslationService")
        assert not client.is_ready("triptych.v1.FillMaskService")
    assert run_command("health", "--server", cluster.address).returncode == 0


def test_tritonclient(cluster: Cluster) -> None:
    client = triton.InferenceServerClient(cluster.address)
    assert client.is_server_ready()
    text = triton.InferInput("text", [1], "BYTES")
    text.set_data_from_numpy(np.array([SOURCE.encode()], dtype=object))
    assert client.infer("toy", [text]).as_numpy("translated_text")[0].decode() == TARGET
    client.close()


def test_a_bidirectional_stream_of_images(channel: grpc.Channel) -> None:
    requests = [
        image_classification_pb2.ClassifyImageStreamRequest(image_id=each, image=data)
        for each, data in enumerate([RED, b"no image", RED])
    ]
    responses = list(ImageClassificationServiceStub(channel).ClassifyImageStream(iter(requests)))
    outcomes = {response.image_id: response.WhichOneof("outcome") for response in responses}
    assert outcomes == {0: "result", 1: "error", 2: "result"}


BAD = [
    (Request(), grpc.StatusCode.INVALID_ARGUMENT, "contents: there are no texts"),
    (Request(contents=["a"], model="foo"), grpc.StatusCode.NOT_FOUND, "model 'foo' not found; available: "),
]


@pytest.mark.parametrize(("request_", "code", "details"), BAD, ids=["empty", "unknown"])
@pytest.mark.parametrize("streams", [False, True], ids=["unary", "stream"])
def test_errors_keep_their_status_and_details(
    translation: TranslationServiceStub, request_: Request, code: grpc.StatusCode, details: str, streams: bool
) -> None:
    stream = StreamRequest(contents=request_.contents, model=request_.model)
    error = failure(lambda: list(translation.TranslateStream(stream)) if streams else translation.Translate(request_))
    assert error.code() is code
    assert error.details().startswith(details)
    status = rpc_status.from_call(error)
    assert details_of(status, error_details_pb2.ErrorInfo).domain == "triptych"
    assert details_of(status, error_details_pb2.RequestInfo).request_id == trailers(error)["x-request-id"]


def busy(cluster: Cluster) -> bool:
    """Return True if the engine of the replica is working: it then uses more than a tenth of a CPU."""
    [replica] = cluster.replicas()
    before, began = sum(replica.cpu_times()[:2]), time.monotonic()
    time.sleep(1)
    return sum(replica.cpu_times()[:2]) - before > 0.1 * (time.monotonic() - began)


def test_cancelled_and_late_requests_are_not_computed(cluster: Cluster, translation: TranslationServiceStub) -> None:
    options = {"beam_size": 8, "min_length": 60, "num_hypotheses": 8}
    request = StreamRequest(contents=["a b c d e f g h"] * 2_000, options=options)  # minutes of work
    call = translation.TranslateStream(request)
    cluster.wait_until(lambda: busy(cluster))
    call.cancel()
    cluster.wait_until(lambda: not busy(cluster))
    error = failure(lambda: list(translation.TranslateStream(request, timeout=5)))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    cluster.wait_until(lambda: not busy(cluster))
    assert translation.Translate(Request(contents=[SOURCE])).translations[0].translated_text == TARGET
