"""A server as the load generator sees it, and what both kinds of targets share.

`triptych_bench.native` calls Triptych's own services, `triptych_bench.oip` the Open Inference Protocol. All moments are of
`time.perf_counter`, in seconds; all durations are in seconds.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import grpc

from triptych_client.call import Call
from triptych_client.connection import Settings, open_async_channel, open_channel
from triptych_client.status import remedy_for

OK = "OK"  # code of a successful outcome
Request: TypeAlias = Any  # as the target prepared it: serialized, so that sending costs the generator little
RawResponse: TypeAlias = Any  # as received; `Target.read` parses it
Counters: TypeAlias = Mapping[str, float]  # counters of a server since its start


class TargetError(Exception):
    """The server cannot be measured; the message is one line."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One input, as read from a file."""

    data: Any  # a text, a pair of texts, an image's bytes, tensors by name
    name: str = ""  # file or line
    reference: str | None = None  # expected output


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """Durations of the stages of one request, as the server reports them; None if it does not."""

    queue: float | None = None
    preprocess: float | None = None
    compute: float | None = None
    postprocess: float | None = None


@dataclass(slots=True)
class Outcome:
    """The outcome of one request, which is also its record in the log of a run."""

    code: str  # name of the gRPC status: "OK", "RESOURCE_EXHAUSTED", ...
    sent: float  # moment when sending began
    received: float  # moment when the whole response was read
    client_send: float | None = None  # duration of sending in the generator, if known
    client_receive: float = 0.0  # duration of parsing the response in the generator
    server: ServerTimes | None = None
    tokens: int = 0  # generated tokens
    token_times: list[float] = field(default_factory=list)  # moments when pieces of a stream arrived; the first is TTFT's
    response: RawResponse = None  # None if the request failed, and in a log
    message: str = ""  # reason of a failure, one line
    batch: int = 0  # index of the batch; set by the log
    due: float = 0.0  # scheduled moment, in closed loops the moment of sending; set by the log

    @property
    def ok(self) -> bool:
        return self.code == OK

    @property
    def latency(self) -> float:
        """Seconds from the scheduled moment to the response."""
        return self.received - self.due


@dataclass(frozen=True, kw_only=True)
class RequestSpec:
    """Task, model and options of the requests. Empty fields leave the choice to the server."""

    task: str  # a key of tasks.TASKS, or "infer": tensors for any model, over the Open Inference Protocol only
    model: str = ""
    version: str = ""
    stream: bool = False  # receive pieces as they are generated
    options: Mapping[str, Any] = field(default_factory=dict)  # of the task, such as beam_size, top_k, target_language
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of tensors with open dimensions


class UnaryCaller:
    """A connection of its own for a thread that sends repeatedly, which costs a third less CPU than an event loop.

    Args:
        settings: Of the connection, which is made at the first call.
        path: Of the method; requests and responses are bytes.
        metadata: Of every call.
        read: Makes the outcome of the response's bytes and the moment of sending.
    """

    def __init__(
        self,
        settings: Settings,
        path: str,
        metadata: tuple[tuple[str, str], ...],
        read: Callable[[bytes, float], Outcome],
    ) -> None:
        self._channel = open_channel(settings)
        self._call: Any = self._channel.unary_unary(path)
        self._timeout, self._metadata = settings.timeout_seconds, metadata
        self._read = read

    def send(self, request: Request) -> Outcome:
        sent = time.perf_counter()
        try:
            response = self._call(request, timeout=self._timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            return failed(error, sent)
        return self._read(response, sent)

    def close(self) -> None:
        """Cancel the request in flight. From any thread."""
        self._channel.close()


class Target(ABC):
    """A server under test over gRPC; belongs to one event loop. Requests and responses are bytes.

    Subclasses set `path`, and `_stream` in `open`.
    """

    path: str  # of the unary method
    _stream: Any  # sends a request and yields the parts of the response

    def __init__(self, settings: Settings, spec: RequestSpec) -> None:
        self._settings, self._spec = settings, spec
        self._metadata = Call("", 0.0, 0, api_key=settings.api_key).metadata[1:]
        self._options: dict[str, Any] = {"timeout": settings.timeout_seconds, "metadata": self._metadata}
        self._streams = spec.stream

    async def open(self) -> None:
        """Connect and check that the model is available. Raises TargetError."""
        self._channel: Any = open_async_channel(self._settings)
        self._call: Any = self._channel.unary_unary(self.path)

    async def close(self) -> None:
        """Cancel all requests in flight."""
        await self._channel.close()

    async def send(self, request: Request) -> Outcome:
        """Send a request and wait; a failure is an outcome, too."""
        if self._streams:
            return await self._send_stream(request)
        sent = time.perf_counter()
        try:
            running = self._call(request, **self._options)
            began = time.perf_counter()
            response = await running
        except grpc.RpcError as error:
            return failed(error, sent)
        return self._read(response, sent, began - sent)

    def caller(self) -> UnaryCaller | None:
        """Return a caller for a thread, or None if requests are only sent by `send`. After `open`."""
        return None if self._streams else UnaryCaller(self._settings, self.path, self._metadata, self._read)

    async def _send_stream(self, request: Request) -> Outcome:
        clock = time.perf_counter
        outcome = Outcome(OK, clock(), 0.0, response=[])
        try:
            call = self._stream(request, **self._options)
            outcome.client_send = clock() - outcome.sent
            async for part in call:
                came = clock()
                self._read_part(part, came, outcome)
                if not outcome.ok:
                    call.cancel()
                    break
                outcome.client_receive += clock() - came
        except grpc.RpcError as error:
            return failed(error, outcome.sent)
        outcome.received = clock()
        return outcome

    @abstractmethod
    async def describe(self) -> dict[str, str]:
        """Return known facts for a report: address, protocol, model, model_version, precision, devices, server."""

    def samples(self, count: int, seed: int) -> list[Sample]:
        """Generate random inputs for "infer"; empty if the target generates none. After `open`."""
        return []

    async def takes_pairs(self) -> bool:
        """Return whether the model classifies pairs of texts; no protocol says so, thus it is sent one. After `open`."""
        try:
            outcome = await self.send(self.prepare([Sample(("One text.", "Another text."))]))
        except TargetError:  # the model has no input for a second text
            return False
        return outcome.code != grpc.StatusCode.INVALID_ARGUMENT.name

    @abstractmethod
    def prepare(self, samples: Sequence[Sample]) -> Request:
        """Make a request that can be sent repeatedly. Raises TargetError if the samples do not fit the model."""

    @abstractmethod
    def read(self, response: RawResponse) -> list[str]:
        """Return the output for each input, as references are written: a translation, the best label, the best token."""

    @abstractmethod
    async def stats(self) -> Counters | None:
        """Return counters of the server, if it has any; their differences describe the time between two calls.

        requests, failures, cached (of the requests); and sums of seconds: total, queue, preprocess, compute, postprocess.
        """

    @abstractmethod
    def _read(self, response: bytes, sent: float, client_send: float | None = None) -> Outcome:
        """Make the outcome of a response that has just arrived."""

    @abstractmethod
    def _read_part(self, part: bytes, came: float, outcome: Outcome) -> None:
        """Add a part of a stream, which arrived at the moment `came`, to the outcome."""


def failed(error: Any, sent: float) -> Outcome:
    """Make the outcome of a request that failed just now with an error of grpc or grpc.aio."""
    return Outcome(error.code().name, sent, time.perf_counter(), message=_details(error))


def reason(error: Any) -> str:
    """Return status and message of a gRPC error, on one line, and what to do about it."""
    return f"{error.code().name}: {(message := _details(error))}{remedy_for(message)}"


def _details(error: Any) -> str:
    return " ".join((error.details() or "no details").split())
