"""The Open Inference Protocol target, against a server with other tensors than Triptych's."""

import asyncio
import base64
import json
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from triptych.inference import open_inference_pb2 as pb
from triptych_bench.oip import OipTarget
from triptych_bench.oip.datatypes import ElementError, encode
from triptych_bench.oip.inputdata import InputTensor, read
from triptych_bench.oip.model import TASK_TENSORS
from triptych_bench.oip.responses import tokens
from triptych_bench.target import RequestSpec, Sample, TargetError
from triptych_bench.tasks import TASKS
from triptych_client.connection import Settings

from .fake_v2 import FakeV2, running

Result = TypeVar("Result")


def with_target(do: Callable[[OipTarget], Awaitable[Result]], fake: FakeV2 | None = None, key: str = "", **spec: Any) -> Result:
    """Return the result of a function for an open target of the fake server."""

    async def run() -> Result:
        async with running(fake or FakeV2()) as address:
            settings = Settings(address=address, api_key=key, timeout_seconds=30)
            target = OipTarget(settings, RequestSpec(**{"task": "infer", **spec}))
            try:
                await target.open()
                return await do(target)
            finally:
                await target.close()

    return asyncio.run(run())


def described(fake: FakeV2 | None = None, **spec: Any) -> dict[str, str]:
    return with_target(lambda target: target.describe(), fake, **spec)


def sent(samples: list[Sample], fake: FakeV2 | None = None, **spec: Any) -> tuple[Any, Any, list[str]]:
    """Return the request at the server, the outcome, and the outputs of a successful one."""
    fake = fake or FakeV2()

    async def send(target: OipTarget) -> Any:
        outcome = await target.send(target.prepare(samples))
        return outcome, target.read(outcome.response) if outcome.ok else []

    outcome, outputs = with_target(send, fake, **spec)
    return fake.requests[-1], outcome, outputs


def rejection(samples: list[Sample], **spec: Any) -> str:
    async def prepare(target: OipTarget) -> Any:
        return target.prepare(samples)

    with pytest.raises(TargetError) as error:
        with_target(prepare, **spec)
    return str(error.value)


def tensors(**values: Any) -> Sample:
    given = {name: InputTensor(tuple(value) if isinstance(value, list) else value) for name, value in values.items()}
    return Sample(given, "data[0]")


def test_inputs_of_any_datatype_are_sent_raw_and_batched() -> None:
    first = tensors(ids=[1, 2, 3, -4], weights=[1.0, 3.140625], flags=[True, 0])
    second = tensors(ids=[5, 6, 7, 2**40], weights=[0.5, -2.0], flags=[1, 1])
    request, outcome, _ = sent([first, second], model="ranker")
    assert outcome.ok
    assert [(one.name, one.datatype, list(one.shape)) for one in request.inputs] == [
        ("ids", "INT64", [2, 4]),
        ("weights", "BF16", [2, 2]),
        ("flags", "BOOL", [2, 2]),
    ]
    ids, weights, flags = request.raw_input_contents
    assert struct.unpack("<8q", ids) == (1, 2, 3, -4, 5, 6, 7, 2**40)
    assert weights == b"\x80\x3f\x49\x40\x00\x3f\x00\xc0"
    assert flags == b"\1\0\1\1"
    assert not any(one.HasField("contents") for one in request.inputs)


def test_models_with_and_without_batches() -> None:
    request, outcome, outputs = sent([tensors(numbers=[1, 2, 9, 4])], model="single")
    assert list(request.inputs[0].shape) == [2, 2]
    assert request.raw_input_contents[0] == b"\1\2\x09\4"
    assert outputs == ["2"]  # the class; [2, 2] is the shape of one output
    assert 0 <= outcome.client_send <= outcome.received - outcome.sent
    assert 0 <= outcome.client_receive <= outcome.received - outcome.sent
    assert (outcome.server, outcome.tokens) == (None, 0)  # the protocol has no times in responses
    two = [tensors(numbers=[1, 2, 3, 4])] * 2
    assert rejection(two, model="single") == "the model single takes at most 1 inputs per request, there are 2"
    request, outcome, outputs = sent([Sample("one"), Sample("two")], FakeV2(extensions=False), task="translate", model="echo")
    assert outcome.ok
    assert list(request.inputs[0].shape) == [2, 1]
    assert request.raw_input_contents[0] == b"\3\0\0\0one\3\0\0\0two"
    assert outputs == ["one", "two"]


def test_open_dimensions_come_from_the_user_or_the_data() -> None:
    shapes = {"pixels": (3, 2, 4)}
    request, _, _ = sent([tensors(pixels=[0.5] * 24)], model="image", shapes=shapes)
    assert list(request.inputs[0].shape) == [1, 3, 2, 4]
    assert request.raw_input_contents[0] == struct.pack("<e", 0.5) * 24
    own = Sample({"pixels": InputTensor((0.5,) * 12, (3, 2, 2))})
    request, _, _ = sent([own], model="image", shapes=shapes)
    assert list(request.inputs[0].shape) == [1, 3, 2, 2]
    mixed = [tensors(pixels=[0.5] * 24), own]
    assert "differ in the shape of 'pixels': [3, 2, 2], [3, 2, 4]" in rejection(mixed, model="image", shapes=shapes)
    _, _, outputs = sent([tensors(pixels=[0.1, 0.9, 0.3])], model="image", shapes={"pixels": (3, 1, 1)})
    assert outputs == ["1"]

    async def make(target: OipTarget) -> Any:
        return target.samples(1, seed=1)

    with pytest.raises(TargetError, match=r"the input pixels FP16 \[3, -1, -1\] has open dimensions: .* --shape pixels:3,1,1"):
        with_target(make, model="image")
    with pytest.raises(TargetError, match=r"the shape \[3, 8\] is not that of the input pixels"):
        with_target(make, model="image", shapes={"pixels": (3, 8)})
    assert with_target(make, model="image", shapes={"pixels": (3, 8, 8)})[0].data["pixels"].shape == (3, 8, 8)


@pytest.mark.parametrize(
    ("model", "values", "message"),
    [
        (
            "image",
            {"pixels": [0.5] * 24},
            "the input pixels FP16 [3, -1, -1] has open dimensions: give their sizes, such as --s",
        ),
        ("single", {"numbers": [1, 2, 3]}, "data[0]: the input numbers UINT8 [2, 2] has 3 elements, the shape [2, 2] has 4"),
        ("single", {"numbers": [1, 2, 3, 256]}, "data[0]: 256 is out of the range of UINT8"),
        ("single", {"numbers": [1, 2, 3, 0.5]}, "data[0]: 0.5 is not a whole number, as UINT8 requires"),
        ("single", {"numbers": [1, 2, 3, "4"]}, "data[0]: '4' is not a number, as UINT8 requires"),
        ("single", {"number": [1]}, "data[0]: no tensor for the input 'numbers' of the model single, which takes numbers"),
        ("echo", {"prompt": [7]}, "data[0]: 7 is not a string, as BYTES requires"),
        ("echo", {"prompt": b"\5\0\0\0abc"}, "data[0]: an element of BYTES at byte 0 is cut off"),
        ("echo", {"prompt": ["a"], "more": [1]}, "the model echo has no input 'more'; it has prompt BYTES [1]"),
    ],
)
def test_tensors_that_do_not_fit_are_rejected(model: str, values: Mapping[str, Any], message: str) -> None:
    assert rejection([tensors(**values)], model=model).startswith(message)


def test_the_largest_numbers_as_programs_print_them() -> None:
    largest = {"FP32": (3.4028235e38, b"\xff\xff\x7f\x7f"), "BF16": (3.3895314e38, b"\x7f\x7f"), "FP16": (65504, b"\xff\x7b")}
    for datatype, (number, raw) in largest.items():
        assert encode(datatype, [number]) == raw
        with pytest.raises(ElementError, match=f"out of the range of {datatype}"):
            encode(datatype, [number * 1.001])
    for datatype in ("INT64", "FP64", "FP32"):
        with pytest.raises(ElementError, match=f"out of the range of {datatype}"):
            encode(datatype, [10**400])


@pytest.mark.parametrize(
    ("task", "data", "model", "message"),
    [
        ("translate", "text", "ranker", "takes ids INT64 [4], weights BF16 [2], flags BOOL [2]: there is no BYTES input"),
        ("answer", ("a", "b"), "echo", "there is no BYTES input for each of 2 texts"),
        ("translate", "text", "chat", "no tensor for the input 'max_tokens'"),
    ],
)
def test_texts_need_inputs_for_texts(task: str, data: Any, model: str, message: str) -> None:
    assert message in rejection([Sample(data)], task=task, model=model)


def test_options_are_parameters_and_the_key_is_metadata() -> None:
    options = {
        **{"beam_size": 4, "length_penalty": 0.5, "return_scores": True},
        **{"target_language": "de", "suppress": ["a"], "seed": None},
    }
    fake, key = FakeV2(), "secret-key-0123456789"
    request, _, _ = sent([Sample("text")], fake, key=key, task="translate", model="echo", version="2", options=options)
    assert request.model_version == "2"
    assert {name: getattr(one, one.WhichOneof("parameter_choice")) for name, one in request.parameters.items()} == {
        **{"beam_size": 4, "length_penalty": 0.5, "return_scores": True},
        **{"target_language_code": "de", "suppress": '["a"]'},
    }
    assert fake.metadata[-1]["authorization"] == f"Bearer {key}"


def test_tokens_are_those_of_the_best_hypotheses_and_streams_have_times() -> None:
    counts = pb.ModelInferResponse.InferOutputTensor(name="token_count", datatype="UINT32", shape=[2, 2])
    raw = struct.pack("<4I", 5, 7, 2, 9)
    assert tokens(pb.ModelInferResponse(outputs=[counts], raw_output_contents=[raw])) == 7
    _, outcome, texts = sent([Sample("one two three")], task="translate", model="words")
    assert outcome.ok
    assert outcome.tokens == len(outcome.token_times) == 3
    assert list(outcome.token_times) == sorted(outcome.token_times)
    assert outcome.sent <= outcome.token_times[0] <= outcome.token_times[-1] <= outcome.received
    assert texts == ["ONE TWO THREE "]
    assert described(task="translate", model="words")["method"] == "ModelStreamInfer"


@pytest.mark.parametrize(("model", "code"), [("echo", "INVALID_ARGUMENT"), ("words", "REFUSED")])
def test_failures_are_outcomes(model: str, code: str) -> None:
    _, outcome, _ = sent([Sample("refuse")], task="translate", model=model)
    assert (outcome.code, outcome.message, outcome.ok) == (code, "such a prompt", False)


@pytest.mark.parametrize("model", ["ranker", "single", "echo", "chat"])
def test_random_inputs_fit_the_model(model: str) -> None:
    fake = FakeV2()

    async def make(target: OipTarget) -> Any:
        samples = target.samples(4, seed=5)
        assert target.samples(4, seed=5) == samples != target.samples(4, seed=6)
        return await target.send(target.prepare(samples if model == "ranker" else samples[:1]))

    assert with_target(make, fake, model=model).ok
    if model == "ranker":
        ids, weights, flags = fake.requests[-1].raw_input_contents
        assert set(struct.unpack("<16q", ids)) == {0, 1}  # valid in every vocabulary
        assert len(weights) == 16
        assert set(flags) <= {0, 1}


def test_statistics_and_description_for_a_report() -> None:
    async def read_twice(target: OipTarget) -> Any:
        before = await target.stats()
        for _ in range(4):
            await target.send(target.prepare([Sample("text")]))
        return before, await target.stats()

    before, after = with_target(read_twice, task="translate", model="echo")
    assert (before["requests"], before["failures"]) == (0, 3)
    stages = {"queue": 0.004, "preprocess": 0.008, "compute": 0.024, "postprocess": 0.002}
    assert after == pytest.approx({"requests": 4, "failures": 3, "total": 0.04, "cached": 8, **stages})
    assert with_target(lambda target: target.stats(), FakeV2(extensions=False), model="echo") is None
    facts = described(FakeV2(loaded=("single",)))  # the only model needs no name
    assert facts.pop("address").startswith("127.0.0.1:")
    assert facts == {
        "protocol": "Open Inference Protocol v2",
        "model": "single",
        "model_version": "1, 2",
        "platform": "fake",
        "server": "fake 2.0",
        "inputs": "numbers UINT8 [2, 2]",
        "method": "ModelInfer",
    }


@pytest.mark.parametrize(
    ("fake", "spec", "message"),
    [
        (FakeV2(), {}, r"the server has chat, echo, image, ranker, single, words: name one with --model"),
        (FakeV2(extensions=False), {}, r"the server does not list its models"),
        (
            FakeV2(),
            {"model": "nobody", "version": "7"},
            r"127\.0\.0\.1:\d+: the model nobody version 7 does not exist or is not ready",
        ),
        (
            FakeV2(),
            {"model": "single", "shapes": {"pixels": (3, 8, 8)}},
            r"the model single has no input 'pixels'; it has numbers UINT8 \[2, 2\]",
        ),
    ],
)
def test_a_target_that_cannot_be_opened(fake: FakeV2, spec: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        described(fake, **spec)


def test_a_server_that_cannot_be_reached_is_not_one_without_extensions() -> None:
    async def run() -> None:
        target = OipTarget(Settings(address="127.0.0.1:1", timeout_seconds=20), RequestSpec(task="infer"))
        try:
            await target.open()
        finally:
            await target.close()

    with pytest.raises(TargetError, match=r"^127\.0\.0\.1:1: ServerMetadata: UNAVAILABLE: "):
        asyncio.run(run())


def test_every_task_but_score_has_tensors() -> None:
    assert {task.capability for name, task in TASKS.items() if name != "infer"} == set(TASK_TENSORS)


def test_data_files_of_perf_analyzer(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    raw = base64.b64encode(b"\2\0\0\0hi").decode()
    entries = [
        {"ids": [1, 2, 3, 4], "weights": [[0.5], [1]], "flags": [True, False]},
        {"prompt": {"content": ["hi"], "shape": [1]}},
        {"prompt": {"b64": raw}},
        {"prompt": {"content": {"b64": raw}, "shape": [1]}},
    ]
    path.write_text(json.dumps({"data": [*entries[:2], entries[2:]], "validation_data": []}))
    samples = read(path)
    assert [sample.name for sample in samples] == ["data[0]", "data[1]", "data[2][0]", "data[2][1]"]
    assert samples[0].data["weights"] == InputTensor((0.5, 1))
    assert samples[1].data["prompt"] == InputTensor(("hi",), (1,))
    assert samples[2].data["prompt"] == InputTensor(b"\2\0\0\0hi")
    assert samples[3].data["prompt"] == InputTensor(b"\2\0\0\0hi", (1,))
    request, outcome, _ = sent(samples[1:], model="echo")
    assert outcome.ok
    assert request.raw_input_contents[0] == b"\2\0\0\0hi" * 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON: "),
        ("[" * 100_000, "not JSON: "),
        ("[]", 'there is no list "data"'),
        ('{"data": []}', '"data" is empty'),
        ('{"data": [7]}', "data[0]: not an object of tensors by name"),
        ('{"data": [[[{}]]]}', "data[0][0]: not an object of tensors by name"),
        ('{"data": [{"a": {"b": 1}}]}', "data[0].a: neither a list of elements nor"),
        ('{"data": [{"a": {"b64": "?"}}]}', "data[0].a: neither a list of elements nor"),
        ('{"data": [{"a": {"content": [1], "shape": [-1]}}]}', "data[0].a.shape: [-1] is not a list of sizes"),
        (None, "cannot be read: No such file"),
    ],
)
def test_other_data_files_are_rejected(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "data.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(TargetError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: {message}")


@pytest.mark.full
@pytest.mark.parametrize("names", ["tritonclient.grpc, triptych_bench.oip", "triptych_bench.oip, tritonclient.grpc"])
def test_tritonclient_can_be_imported_as_well(names: str) -> None:
    """Both have stubs of the same names, each in its own descriptor pool."""
    result = subprocess.run([sys.executable, "-c", f"import {names}"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
