"""A Triptych server, asked through its own services.

Requests are serialized once and sent as bytes, and of an answer only timing and token counts are read: on few CPUs the load
generator competes with the server that it measures.
"""

import time
from collections.abc import Coroutine, Sequence
from typing import Any

import grpc
from grpc import aio

from triptych.inference import open_inference_pb2 as pb
from triptych.v1 import model_pb2
from triptych_bench.caller import UnaryCaller
from triptych_bench.failure import failed, reason
from triptych_bench.native.methods import METHODS, best_tokens, stream_request
from triptych_bench.oip.counters import counters
from triptych_bench.target import OK, Answer, Caller, Counters, Outcome, Request, Sample, ServerTimes, TargetError, Wanted
from triptych_bench.tasks import TASKS
from triptych_client.call import Call
from triptych_client.connection import open_async_channel
from triptych_client.settings import Settings
from triptych_client.tasks import LIST_MODELS, TRANSLATE_STREAM

STATISTICS = "/inference.GRPCInferenceService/ModelStatistics"
PAIR_LABELS = {"next", "not_next"}  # of models that take pairs


class NativeTarget:
    """See `triptych_bench.target.Target`."""

    def __init__(self, settings: Settings, wanted: Wanted) -> None:
        self._settings, self._wanted = settings, wanted
        self._method = METHODS[wanted.task]
        self._parse = self._method.task.response.FromString
        self._metadata = Call("", 0.0, 0, api_key=settings.api_key).metadata[1:]
        self._served = ("", "")  # model and version, as the last answer says
        self._models: list[model_pb2.Model] = []

    async def open(self) -> None:
        self._channel = channel = open_async_channel(self._settings)
        # No serializers: bytes go out and come in as they are.
        self._call: Any = channel.unary_unary(self._method.task.path)
        self._stream: Any = channel.unary_stream(TRANSLATE_STREAM.path)
        self._statistics: Any = channel.unary_unary(STATISTICS)
        service = f"triptych.v1.{TASKS[self._wanted.task].service}"
        found = await self._list_models()
        self._models = [model for model in found if service in model.services and self._wanted.model in ("", model.name)]

    async def close(self) -> None:
        await self._channel.close()

    async def _list_models(self) -> Sequence[model_pb2.Model]:
        """None where the server does not tell; requests will."""
        timeout = self._settings.timeout_seconds
        try:
            call = self._channel.unary_unary(LIST_MODELS.path, **LIST_MODELS.codec)
            response = await call(model_pb2.ListModelsRequest(), timeout=timeout, metadata=self._metadata)
            return list(response.models)
        except aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED):
                return ()
            raise TargetError(f"{self._settings.address}: {reason(error)}") from error

    @property
    def takes_pairs(self) -> bool:
        """Every model that could answer tells what follows a text."""
        return bool(self._models) and all(set(model.labels) == PAIR_LABELS for model in self._models)

    async def describe(self) -> dict[str, str]:
        """After the first answer."""
        name, version = self._served
        facts = {"address": self._settings.address, "protocol": "triptych.v1", "model": name, "model_version": version}
        for model in self._models:
            if (model.name, model.version) == self._served:
                facts |= {"precision": model.precision, "devices": ",".join(model.devices)}
        return {key: value for key, value in facts.items() if value}

    def samples(self, count: int, seed: int) -> list[Sample]:
        return []

    def prepare(self, samples: Sequence[Sample]) -> Request:
        try:
            return (stream_request if self._wanted.stream else self._method.request)(samples, self._wanted)
        except (TypeError, ValueError) as error:
            raise TargetError(str(error)) from error

    def send(self, request: Request) -> Coroutine[Any, Any, Outcome]:
        return self._send_stream(request) if self._wanted.stream else self._send(request)

    async def _send(self, request: Request) -> Outcome:
        clock = time.perf_counter
        sent = clock()
        try:
            call = self._call(request, timeout=self._settings.timeout_seconds, metadata=self._metadata)
            began = clock()
            answer = await call
        except aio.AioRpcError as error:
            return failed(error, sent)
        return self._read(answer, sent, began - sent)

    def caller(self) -> Caller | None:
        if self._wanted.stream:
            return None
        return UnaryCaller(self._settings, self._method.task.path, self._metadata, self._read)

    def _read(self, answer: bytes, sent: float, client_send: float | None = None) -> Outcome:
        came = time.perf_counter()
        message = self._parse(answer)
        self._served = (message.model, message.model_version)
        tokens, server = self._method.count_tokens(message), _times(message.timing)
        now = time.perf_counter()
        return Outcome(OK, sent, now, client_send, now - came, server, tokens, (), answer)

    async def _send_stream(self, request: Request) -> Outcome:
        clock = time.perf_counter
        sent = clock()
        times: list[float] = []
        results: dict[int, str] = {}
        tokens, server, reading = 0, None, 0.0
        try:
            call = self._stream(request, timeout=self._settings.timeout_seconds, metadata=self._metadata)
            began = clock()
            async for part in call:
                came = clock()
                event = TRANSLATE_STREAM.response.FromString(part)
                if event.HasField("piece"):
                    times.append(came)
                elif event.HasField("result"):
                    tokens += best_tokens(event.result.translation)
                    results[event.result.content_index] = event.result.translation.translated_text
                else:
                    self._served = (event.summary.model, event.summary.model_version)
                    server = _times(event.summary.timing)
                reading += clock() - came
        except aio.AioRpcError as error:
            return failed(error, sent)
        answer = [results[index] for index in sorted(results)]
        return Outcome(OK, sent, clock(), began - sent, reading, server, tokens, tuple(times), answer)

    def read(self, answer: Answer) -> list[str]:
        return list(answer) if self._wanted.stream else self._method.outputs(self._parse(answer))

    async def stats(self) -> Counters | None:
        """From the server's Open Inference Protocol, which counts all of its services."""
        request = pb.ModelStatisticsRequest(name=self._served[0] or self._wanted.model)
        timeout = self._settings.timeout_seconds
        try:
            answer = await self._statistics(request.SerializeToString(), timeout=timeout, metadata=self._metadata)
        except aio.AioRpcError:
            return None
        return counters(pb.ModelStatisticsResponse.FromString(answer).model_stats)


def _times(timing: Any) -> ServerTimes:
    return ServerTimes(timing.queue_seconds, timing.preprocess_seconds, timing.inference_seconds, timing.postprocess_seconds)
