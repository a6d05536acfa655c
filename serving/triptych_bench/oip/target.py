"""A server of the Open Inference Protocol, asked as the load generator needs it."""

import math
import random
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

from grpc import StatusCode, aio

from triptych.inference import open_inference_pb2 as pb
from triptych_bench.caller import UnaryCaller
from triptych_bench.failure import failed, reason
from triptych_bench.oip import answers, own
from triptych_bench.oip.counters import counters
from triptych_bench.oip.datatypes import ElementError, made_up
from triptych_bench.oip.inputdata import Given
from triptych_bench.oip.model import ModelFacts, facts_of, sizes
from triptych_bench.oip.requests import Requests
from triptych_bench.target import OK, Answer, Caller, Counters, Outcome, Request, Sample, TargetError, Wanted
from triptych_client.call import Call
from triptych_client.connection import open_async_channel
from triptych_client.settings import Settings

SERVICE = "/inference.GRPCInferenceService/"
PROTOCOL = "Open Inference Protocol v2"
REFUSED = "REFUSED"  # an error message on a stream, without a status that gRPC knows
ABSENT = (StatusCode.UNIMPLEMENTED, StatusCode.UNAVAILABLE, StatusCode.PERMISSION_DENIED)  # of what a server need not have


class OipTarget:
    """See `triptych_bench.target.Target`."""

    def __init__(self, settings: Settings, wanted: Wanted) -> None:
        self._settings, self._wanted = settings, wanted
        self._metadata = Call("", 0.0, 0, api_key=settings.api_key).metadata[1:]
        self._streams = wanted.stream
        self._version = ""  # as the last answer says

    async def open(self) -> None:
        self._channel: Any = open_async_channel(self._settings)
        # No serializers: bytes go out and come in as they are.
        self._infer: Any = self._channel.unary_unary(f"{SERVICE}ModelInfer")
        self._stream: Any = self._channel.stream_stream(f"{SERVICE}ModelStreamInfer")
        self._facts = await self._model(self._wanted.model or await self._only_model())
        self._streams = self._wanted.stream or self._facts.decoupled
        self._requests = Requests(self._facts, self._wanted)
        self._own = own.own_tensors(self._facts, self._wanted)

    async def close(self) -> None:
        await self._channel.close()

    async def describe(self) -> dict[str, str]:
        server = await self._optional("ServerMetadata", pb.ServerMetadataRequest(), pb.ServerMetadataResponse)
        facts = {
            "address": self._settings.address,
            "protocol": PROTOCOL,
            "model": self._facts.name,
            "model_version": self._version or self._wanted.version or ", ".join(self._facts.versions),
            "precision": self._facts.parameters.get("precision", ""),
            "devices": self._facts.parameters.get("devices", ""),
            "platform": self._facts.platform,
            "server": f"{server.name} {server.version}".strip() if server else "",
            "inputs": self._facts.listed,
            "method": "ModelStreamInfer" if self._streams else "ModelInfer",
        }
        return {name: value for name, value in facts.items() if value}

    def samples(self, count: int, seed: int) -> list[Sample]:
        generator = random.Random(seed)
        return [self._made_up(f"made up {index}", generator) for index in range(count)] if self._wanted.task == "infer" else []

    def prepare(self, samples: Sequence[Sample]) -> Request:
        request = self._requests.serialized(samples)
        if len(request) > self._settings.max_message_bytes:
            most = self._settings.max_message_bytes
            raise TargetError(f"a request of {len(samples):,} inputs has {len(request):,} bytes, it may have {most:,}")
        return request

    def send(self, request: Request) -> Coroutine[Any, Any, Outcome]:
        return self._send_stream(request) if self._streams else self._send(request)

    async def _send(self, request: Request) -> Outcome:
        clock = time.perf_counter
        sent = clock()
        try:
            call = self._infer(request, timeout=self._settings.timeout_seconds, metadata=self._metadata)
            began = clock()
            answer = await call
        except aio.AioRpcError as error:
            return failed(error, sent)
        return self._read_one(answer, sent, began - sent)

    def caller(self) -> Caller | None:
        if self._streams:
            return None
        return UnaryCaller(self._settings, f"{SERVICE}ModelInfer", self._metadata, self._read_one)

    def _read_one(self, answer: bytes, sent: float, client_send: float | None = None) -> Outcome:
        came = time.perf_counter()
        message = pb.ModelInferResponse.FromString(answer)
        self._version = message.model_version
        tokens = answers.tokens(message) if self._own else 0
        now = time.perf_counter()
        return Outcome(OK, sent, now, client_send, now - came, None, tokens, (), (answer,))

    async def _send_stream(self, request: Request) -> Outcome:
        """One stream a request: closed on this side at once, it ends with the last response."""
        clock = time.perf_counter
        sent = clock()
        parts: list[bytes] = []
        times: list[float] = []
        tokens, reading, began = 0, 0.0, sent
        try:
            call = self._stream(_once(request), timeout=self._settings.timeout_seconds, metadata=self._metadata)
            began = clock()
            async for part in call:
                came = clock()
                event = pb.ModelStreamInferResponse.FromString(part)
                if event.error_message:
                    call.cancel()
                    return Outcome(_code(event.error_message), sent, clock(), message=" ".join(event.error_message.split()))
                kept, count = self._read_part(event.infer_response, came, times)
                tokens += count
                if kept:
                    parts.append(part)
                reading += clock() - came
        except aio.AioRpcError as error:
            return failed(error, sent)
        return Outcome(OK, sent, clock(), began - sent, reading, None, tokens, tuple(times), tuple(parts))

    def _read_part(self, message: pb.ModelInferResponse, came: float, times: list[float]) -> tuple[bool, int]:
        """Whether a response is needed to read the answer, and its tokens: of a model that is not Triptych's, it is one."""
        if not message.outputs:
            return False, 0  # the end of them, as a message
        self._version = message.model_version or self._version
        piece = not self._own or any(one.name == own.PIECE for one in message.outputs)
        if piece:
            times.append(came)
        if not self._own:
            return True, 1
        return not piece, answers.tokens(message)

    def read(self, answer: Answer) -> list[str]:
        try:
            return answers.read([self._message(part) for part in answer], self._own, self._facts.batches)
        except ElementError as error:
            raise TargetError(f"{self._facts.name}: {error}") from error

    def _message(self, part: bytes) -> pb.ModelInferResponse:
        return (
            pb.ModelStreamInferResponse.FromString(part).infer_response
            if self._streams
            else pb.ModelInferResponse.FromString(part)
        )

    async def stats(self) -> Counters | None:
        request = pb.ModelStatisticsRequest(name=self._facts.name, version=self._wanted.version)
        found = await self._optional("ModelStatistics", request, pb.ModelStatisticsResponse)
        return counters(found.model_stats) if found and found.model_stats else None

    async def _model(self, name: str) -> ModelFacts:
        """What the server says of it."""
        version = self._wanted.version
        ready = await self._ask("ModelReady", pb.ModelReadyRequest(name=name, version=version), pb.ModelReadyResponse)
        if not ready.ready:
            said = f"{name} version {version}" if version else name
            raise TargetError(f"{self._settings.address}: the model {said} is not there, or not ready")
        metadata = await self._ask(
            "ModelMetadata", pb.ModelMetadataRequest(name=name, version=version), pb.ModelMetadataResponse
        )
        config = await self._optional("ModelConfig", pb.ModelConfigRequest(name=name, version=version), pb.ModelConfigResponse)
        return facts_of(metadata, config.config if config else None)

    async def _only_model(self) -> str:
        """Where the user names none."""
        index = await self._optional("RepositoryIndex", pb.RepositoryIndexRequest(ready=True), pb.RepositoryIndexResponse)
        names: list[str] = sorted({model.name for model in index.models if model.state in ("", "READY")}) if index else []
        if len(names) != 1:
            have = f"it has {', '.join(names)}" if names else "it does not say which it has"
            raise TargetError(f"{self._settings.address}: which model? {have}; name one with --model")
        return names[0]

    def _made_up(self, name: str, generator: random.Random) -> Sample:
        tensors = {}
        for tensor in self._facts.required:
            shape = sizes(tensor, self._wanted.shapes.get(tensor.name))
            try:
                tensors[tensor.name] = Given(made_up(tensor.datatype, math.prod(shape), generator), shape)
            except ElementError as error:
                raise TargetError(f"the input {tensor}: {error}") from error
        return Sample(tensors, name)

    async def _ask(self, method: str, request: Any, response: Any) -> Any:
        """Raises TargetError: no answer."""
        try:
            return await self._call(method, request, response)
        except aio.AioRpcError as error:
            raise TargetError(f"{self._settings.address}: {method}: {reason(error)}") from error

    async def _optional(self, method: str, request: Any, response: Any) -> Any:
        """None where the server does not have the method, which an extension of the protocol brings."""
        try:
            return await self._call(method, request, response)
        except aio.AioRpcError as error:
            if error.code() in ABSENT:
                return None
            raise TargetError(f"{self._settings.address}: {method}: {reason(error)}") from error

    async def _call(self, method: str, request: Any, response: Any) -> Any:
        call = self._channel.unary_unary(f"{SERVICE}{method}")
        answer = await call(request.SerializeToString(), timeout=self._settings.timeout_seconds, metadata=self._metadata)
        return response.FromString(answer)


async def _once(request: bytes) -> AsyncIterator[bytes]:
    yield request


def _code(message: str) -> str:
    """The status before a colon, as Triptych has it; others write a sentence."""
    name = message.partition(":")[0]
    return name if name in StatusCode.__members__ else REFUSED
