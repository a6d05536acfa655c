"""A Triptych server, called through its own services.

Requests are serialized once and sent as bytes, and of a response only times and token counts are parsed: on few CPUs the load
generator competes with the server under test.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from grpc import aio

from triptych.decoding import DecodingArguments, DecodingOptions
from triptych.inference import open_inference_pb2 as pb
from triptych.v1 import model_pb2
from triptych_bench.oip.responses import counters
from triptych_bench.target import (
    OK,
    Counters,
    Outcome,
    RawResponse,
    Request,
    RequestSpec,
    Sample,
    ServerTimes,
    Target,
    TargetError,
    reason,
)
from triptych_bench.tasks import TASKS
from triptych_client import tasks, text_tasks
from triptych_client.connection import Settings
from triptych_client.generation import GENERATE, GENERATE_STREAM

STATISTICS = "/inference.GRPCInferenceService/ModelStatistics"


@dataclass(frozen=True)
class TaskMethod:
    """A task of the client."""

    task: tasks.UnaryTask[Any]
    read: Callable[[Any], str]  # converts the message of one result to text, as references are written
    tokens: Callable[[Any], int] | None = None  # counts the generated tokens of one result
    stream: tasks.UnaryTask[Any] | None = None  # the method with a stream
    result: tuple[str, str] = ("", "")  # the fields of a stream's result: the index of the input, and the result itself

    def count_tokens(self, message: Any) -> int:
        return sum(map(self.tokens, getattr(message, self.task.results))) if self.tokens else 0


def _serialized_request(task: tasks.UnaryTask[Any], samples: Sequence[Sample], spec: RequestSpec) -> bytes:
    """Serialize one request. Raises TypeError and ValueError if the samples or options do not fit the task."""
    arguments = {"model": spec.model or None, "model_version": spec.version or None, **spec.options}
    if "options" in task.arguments.__optional_keys__:
        decoding = {name: arguments.pop(name) for name in spec.options if name in DecodingArguments.__optional_keys__}
        if prefix := decoding.pop("target_prefix", ""):
            decoding["target_prefix"] = (prefix,) * len(samples)
        arguments["options"] = DecodingOptions(**decoding)
    request: bytes = task.request_with([sample.data for sample in samples], arguments).SerializeToString()
    return request


def _label(result: Any) -> str:
    return result.labels[0].label if result.labels else ""


METHODS: Mapping[str, TaskMethod] = {
    "translate": TaskMethod(
        tasks.TRANSLATE,
        lambda result: result.translated_text,
        lambda result: sum(each.token_count for each in result.hypotheses[:1]),  # only the first hypothesis is streamed
        tasks.TRANSLATE_STREAM,
        ("content_index", "translation"),
    ),
    "generate": TaskMethod(
        GENERATE,
        lambda result: result.choices[0].text,
        lambda result: sum(each.token_count for each in result.choices),
        GENERATE_STREAM,
        ("prompt_index", "generation"),
    ),
    "score": TaskMethod(tasks.SCORE_TRANSLATIONS, lambda result: f"{result.log_probability:.4f}"),
    "fill": TaskMethod(text_tasks.FILL_MASK, lambda result: result.masks[0].candidates[0].token_str if result.masks else ""),
    "embed": TaskMethod(text_tasks.EMBED, lambda result: str(len(result.values))),
    "classify-text": TaskMethod(text_tasks.CLASSIFY_TEXT, _label),
    "classify-tokens": TaskMethod(
        text_tasks.CLASSIFY_TOKENS, lambda result: " ".join(f"{entity.label}:{entity.text}" for entity in result.entities)
    ),
    "answer": TaskMethod(text_tasks.ANSWER, lambda result: result.answers[0].text if result.answers else ""),
    "classify": TaskMethod(tasks.CLASSIFY_IMAGE, _label),
}


class NativeTarget(Target):
    """One of the services of triptych.v1, called for one task."""

    def __init__(self, settings: Settings, spec: RequestSpec) -> None:
        super().__init__(settings, spec)
        self._method = METHODS[spec.task]
        self.path = self._method.task.path
        self._parse = self._method.task.response.FromString
        self._served = ("", "")  # model and version of the last response
        self._models: list[model_pb2.Model] = []

    async def open(self) -> None:
        await super().open()
        self._stream = self._channel.unary_stream(self._method.stream.path) if self._method.stream else None
        self._statistics: Any = self._channel.unary_unary(STATISTICS)
        service = f"triptych.v1.{TASKS[self._spec.task].service}"
        found = await self._list_models()
        self._models = [model for model in found if service in model.services and self._spec.model in ("", model.name)]

    async def _list_models(self) -> Sequence[model_pb2.Model]:
        """List the models, or none if the server does not support that."""
        try:
            call = self._channel.unary_unary(tasks.LIST_MODELS.path, **tasks.LIST_MODELS.codec)
            response = await call(model_pb2.ListModelsRequest(), **self._options)
            return list(response.models)
        except aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED):
                return ()
            raise TargetError(f"{self._settings.address}: {reason(error)}") from error

    async def describe(self) -> dict[str, str]:
        """Describe the target, after the first response."""
        name, version = self._served
        facts = {"address": self._settings.address, "protocol": "triptych.v1", "model": name, "model_version": version}
        for model in self._models:
            if (model.name, model.version) == self._served:
                facts |= {"precision": model.precision, "devices": ",".join(model.devices)}
        return {key: value for key, value in facts.items() if value}

    def prepare(self, samples: Sequence[Sample]) -> Request:
        try:
            task = self._method.stream if self._spec.stream else None
            return _serialized_request(task or self._method.task, samples, self._spec)
        except (TypeError, ValueError) as error:
            raise TargetError(str(error)) from error

    def _read(self, response: bytes, sent: float, client_send: float | None = None) -> Outcome:
        received = time.perf_counter()
        message = self._parse(response)
        self._served = (message.model, message.model_version)
        tokens, server = self._method.count_tokens(message), _times(message.timing)
        now = time.perf_counter()
        return Outcome(OK, sent, now, client_send, now - received, server, tokens, response=response)

    def _read_part(self, part: bytes, came: float, outcome: Outcome) -> None:
        method = self._method
        assert method.stream is not None
        assert method.tokens is not None
        event = method.stream.response.FromString(part)
        if event.HasField("piece"):
            outcome.token_times.append(came)
        elif event.HasField("result"):
            index, result = (getattr(event.result, name) for name in method.result)
            outcome.tokens += method.tokens(result)
            outcome.response.append((index, method.read(result)))
        else:
            self._served = (event.summary.model, event.summary.model_version)
            outcome.server = _times(event.summary.timing)

    def read(self, response: RawResponse) -> list[str]:
        if self._spec.stream:
            return [text for _, text in sorted(response)]
        return [self._method.read(result) for result in getattr(self._parse(response), self._method.task.results)]

    async def stats(self) -> Counters | None:
        """Read the statistics of the Open Inference Protocol, which cover all services of the server."""
        request = pb.ModelStatisticsRequest(name=self._served[0] or self._spec.model)
        try:
            response = await self._statistics(request.SerializeToString(), **self._options)
        except aio.AioRpcError:
            return None
        return counters(pb.ModelStatisticsResponse.FromString(response).model_stats)


def _times(timing: Any) -> ServerTimes:
    return ServerTimes(timing.queue_seconds, timing.preprocess_seconds, timing.inference_seconds, timing.postprocess_seconds)
