"""A server of the Open Inference Protocol as a target of the load generator."""

import math
import random
import time
from collections.abc import Sequence
from typing import Any

from grpc import StatusCode, aio

from triptych.inference import open_inference_pb2 as pb
from triptych_bench.oip import responses
from triptych_bench.oip.datatypes import ElementError, random_contents
from triptych_bench.oip.inputdata import InputTensor
from triptych_bench.oip.model import PIECE, ModelFacts, facts_of, sizes
from triptych_bench.oip.requests import RequestBuilder
from triptych_bench.target import (
    OK,
    Counters,
    Outcome,
    RawResponse,
    Request,
    Sample,
    Target,
    TargetError,
    reason,
)

SERVICE = "/inference.GRPCInferenceService/"
PROTOCOL = "Open Inference Protocol v2"
REFUSED = "REFUSED"  # code of an error message on a stream that does not begin with a gRPC status
# Statuses of optional methods that a server does not offer.
ABSENT = (StatusCode.UNIMPLEMENTED, StatusCode.UNAVAILABLE, StatusCode.PERMISSION_DENIED)


class OipTarget(Target):
    """A model of any server of the protocol."""

    path = f"{SERVICE}ModelInfer"
    _version = ""  # of the last response

    async def open(self) -> None:
        await super().open()
        stream = self._channel.stream_stream(f"{SERVICE}ModelStreamInfer")
        self._stream = lambda request, **options: stream([request], **options)  # each request on its own stream
        self._facts = await self._model(self._spec.model or await self._only_model())
        self._streams = self._spec.stream or self._facts.decoupled
        self._requests = RequestBuilder(self._facts, self._spec)
        self._task = self._requests.task

    async def describe(self) -> dict[str, str]:
        server = await self._optional("ServerMetadata", pb.ServerMetadataRequest(), pb.ServerMetadataResponse)
        facts = {
            "address": self._settings.address,
            "protocol": PROTOCOL,
            "model": self._facts.name,
            "model_version": self._version or self._spec.version or ", ".join(self._facts.versions),
            "precision": self._facts.parameters.get("precision", ""),
            "devices": self._facts.parameters.get("devices", ""),
            "platform": self._facts.platform,
            "server": f"{server.name} {server.version}".strip() if server else "",
            "inputs": self._facts.listed,
            "method": "ModelStreamInfer" if self._streams else "ModelInfer",
        }
        return {name: value for name, value in facts.items() if value}

    def samples(self, count: int, seed: int) -> list[Sample]:
        if self._spec.task != "infer":
            return []
        generator = random.Random(seed)
        return [self._random_sample(f"random {index}", generator) for index in range(count)]

    def prepare(self, samples: Sequence[Sample]) -> Request:
        request = self._requests.serialized(samples)
        if len(request) > self._settings.max_message_bytes:
            most = self._settings.max_message_bytes
            raise TargetError(
                f"a request of {len(samples):,} inputs has {len(request):,} bytes, above `max_message_bytes`, {most:,}"
            )
        return request

    def _read(self, response: bytes, sent: float, client_send: float | None = None) -> Outcome:
        came = time.perf_counter()
        message = pb.ModelInferResponse.FromString(response)
        self._version = message.model_version
        tokens = responses.tokens(message) if self._task else 0
        now = time.perf_counter()
        return Outcome(OK, sent, now, client_send, now - came, tokens=tokens, response=[response])

    def _read_part(self, part: bytes, came: float, outcome: Outcome) -> None:
        event = pb.ModelStreamInferResponse.FromString(part)
        message = event.infer_response
        if event.error_message:
            outcome.code, outcome.message = _code(event.error_message), " ".join(event.error_message.split())
            return
        if not message.outputs:  # the end of the responses
            return
        self._version = message.model_version or self._version
        piece = not self._task or any(one.name == PIECE for one in message.outputs)
        if piece:
            outcome.token_times.append(came)
        if not self._task:  # models of other servers send one token at a time
            outcome.tokens += 1
        elif not piece:
            outcome.tokens += responses.tokens(message)
        if not self._task or not piece:
            outcome.response.append(part)

    def read(self, response: RawResponse) -> list[str]:
        try:
            if self._streams:
                messages = [pb.ModelStreamInferResponse.FromString(part).infer_response for part in response]
            else:
                messages = [pb.ModelInferResponse.FromString(part) for part in response]
            return responses.read(messages, self._task, self._facts.batches)
        except ElementError as error:
            raise TargetError(f"{self._facts.name}: {error}") from error

    async def stats(self) -> Counters | None:
        request = pb.ModelStatisticsRequest(name=self._facts.name, version=self._spec.version)
        found = await self._optional("ModelStatistics", request, pb.ModelStatisticsResponse)
        return responses.counters(found.model_stats) if found and found.model_stats else None

    async def _model(self, name: str) -> ModelFacts:
        """Describe a model. Raises TargetError if it is not ready."""
        version = self._spec.version
        ready = await self._ask("ModelReady", pb.ModelReadyRequest(name=name, version=version), pb.ModelReadyResponse)
        if not ready.ready:
            full_name = f"{name} version {version}" if version else name
            raise TargetError(f"{self._settings.address}: the model {full_name} does not exist or is not ready")
        metadata = await self._ask(
            "ModelMetadata", pb.ModelMetadataRequest(name=name, version=version), pb.ModelMetadataResponse
        )
        config = await self._optional("ModelConfig", pb.ModelConfigRequest(name=name, version=version), pb.ModelConfigResponse)
        return facts_of(metadata, config.config if config else None)

    async def _only_model(self) -> str:
        """Return the server's only model, if the user names none."""
        # If no server answers at all, that is also UNAVAILABLE, which is not a missing extension then.
        await self._ask("ServerMetadata", pb.ServerMetadataRequest(), pb.ServerMetadataResponse)
        index = await self._optional("RepositoryIndex", pb.RepositoryIndexRequest(ready=True), pb.RepositoryIndexResponse)
        names: list[str] = sorted({model.name for model in index.models if model.state in ("", "READY")}) if index else []
        if len(names) != 1:
            have = f"the server has {', '.join(names)}" if names else "the server does not list its models"
            raise TargetError(f"{self._settings.address}: {have}: name one with --model")
        return names[0]

    def _random_sample(self, name: str, generator: random.Random) -> Sample:
        tensors = {}
        for tensor in self._facts.required:
            shape = sizes(tensor, self._spec.shapes.get(tensor.name))
            try:
                tensors[tensor.name] = InputTensor(random_contents(tensor.datatype, math.prod(shape), generator), shape)
            except ElementError as error:
                raise TargetError(f"the input {tensor}: {error}") from error
        return Sample(tensors, name)

    async def _optional(self, method: str, request: Any, response: Any) -> Any:
        """Call a method of an extension; None if the server does not have it."""
        return await self._ask(method, request, response, absent=ABSENT)

    async def _ask(self, method: str, request: Any, response: Any, absent: Sequence[StatusCode] = ()) -> Any:
        """Call a method; None if it fails with a status of `absent`. Raises TargetError."""
        call = self._channel.unary_unary(f"{SERVICE}{method}")
        try:
            return response.FromString(await call(request.SerializeToString(), **self._options))
        except aio.AioRpcError as error:
            if error.code() in absent:
                return None
            raise TargetError(f"{self._settings.address}: {method}: {reason(error)}") from error


def _code(message: str) -> str:
    """Return the status before a colon, which messages of Triptych have."""
    name = message.partition(":")[0]
    return name if name in StatusCode.__members__ else REFUSED
