"""Requests to each task with odd parameters and outputs: a fault is the caller's, and the server goes on.

Requests that are malformed in other ways are in tests/fuzz.
"""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triptych.inference import open_inference_pb2 as pb
from triptych.inference.open_inference_pb2_grpc import GRPCInferenceServiceStub
from triptych_serving.bundle.manifest.tensors import BYTES
from triptych_serving.services.oip.parameters import ParameterType
from triptych_serving.services.oip.tasks import TASKS
from triptych_serving.services.oip.tensors import encode

from ...fixtures.encoders import png
from ...fixtures.toy import SOURCE, TARGET

CALLERS_FAULT = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION}
MODELS = ("toy", "fill-mask", "text-classification", "token-classification", "question-answering", "image-classification")

# Sessions in this process let the processor flush subnormal numbers, which Hypothesis would stumble over.
FLOATS = st.floats(allow_subnormal=False)
NUMBERS = st.one_of(st.integers(-2, 5), st.sampled_from([2**31, 2**32 - 1, 2**63 - 1]))
TEXTS = st.one_of(st.text(max_size=12), st.sampled_from(["auto", "cls", '["a"]', '["\\ud800"]', "de", "embedding", *TASKS]))
BY_MEMBER = {
    "bool_param": st.booleans(),
    "int64_param": NUMBERS,
    "uint64_param": st.sampled_from([0, 1, 2**64 - 1]),
    "double_param": st.one_of(FLOATS, st.floats(0, 2, allow_subnormal=False)),
    "string_param": TEXTS,
}
TEXT = st.sampled_from([SOURCE.encode(), b"one [MASK] two", b"Anna lives in [MASK]", b"[MASK]"])
GOOD = {"image": st.just(png((0, 0, 255)))}


@st.composite
def typed(draw: st.DrawFn, kind: ParameterType) -> pb.InferParameter:
    """A parameter of the right type."""
    member = draw(st.sampled_from(kind.members))
    return pb.InferParameter(**{member: draw(BY_MEMBER[member])})


@st.composite
def nearly_right(draw: st.DrawFn) -> pb.ModelInferRequest:
    """One text or image for a task of the model, in its own tensors, with some of its own parameters."""
    model = draw(st.sampled_from(MODELS))
    task = TASKS["translation" if model == "toy" else model]
    names = draw(st.lists(st.sampled_from(sorted(task.parameters)), max_size=2, unique=True))
    parameters = {name: draw(typed(task.parameters[name])) for name in names}
    version = draw(st.sampled_from(["", "", "1", "-1", "stable"]))
    request = pb.ModelInferRequest(model_name=model, model_version=version, id=draw(st.text(max_size=8)), parameters=parameters)
    for tensor in task.inputs:
        if not tensor.optional or draw(st.booleans()):
            request.inputs.add(name=tensor.name, datatype="BYTES", shape=[1])
            request.raw_input_contents.append(bytes(encode([draw(GOOD.get(tensor.name, TEXT))], 1, BYTES)[1]))
    wanted = draw(st.lists(st.sampled_from(task.outputs), max_size=2, unique=True))
    request.outputs.extend(pb.ModelInferRequest.InferRequestedOutputTensor(name=output.name) for output in wanted)
    return request


FUZZ = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(scope="module")
def channel(every_model: str) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(every_model) as channel:
        yield channel
        request = pb.ModelInferRequest(model_name="toy")
        request.inputs.add(name="text", datatype="BYTES", shape=[1]).contents.bytes_contents.append(SOURCE.encode())
        response = GRPCInferenceServiceStub(channel).ModelInfer(request)
        assert response.raw_output_contents[0][4:].decode() == TARGET


def assert_callers_fault(error: Any) -> None:
    assert error.code() in CALLERS_FAULT, error
    assert len(error.details().splitlines()) == 1


@FUZZ
@given(request=nearly_right())
def test_requests_to_infer(channel: grpc.Channel, request: pb.ModelInferRequest) -> None:
    try:
        response = GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=60)
    except grpc.RpcError as error:
        assert_callers_fault(error)
        return
    assert response.id == request.id
    assert len(response.outputs) == len(response.raw_output_contents)


@settings(FUZZ, max_examples=20)
@given(requests=st.lists(nearly_right(), max_size=6))
def test_streams_answer_every_request(channel: grpc.Channel, requests: list[pb.ModelInferRequest]) -> None:
    responses = list(GRPCInferenceServiceStub(channel).ModelStreamInfer(iter(requests), timeout=60))
    finals = [one for one in responses if one.infer_response.parameters["triton_final_response"].bool_param]
    assert sorted(one.infer_response.id for one in finals) == sorted(request.id for request in requests)
    codes = {one.error_message.partition(":")[0] for one in responses if one.error_message}
    assert codes <= {code.name for code in CALLERS_FAULT}
