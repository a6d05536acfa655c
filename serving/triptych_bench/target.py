"""What is measured: a server, as the load generator sees it.

`native` speaks Triptych's own services, `oip` the Open Inference Protocol.
All moments are of `time.perf_counter`, in seconds; all durations are seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

OK = "OK"  # the code of an answer
Request: TypeAlias = Any  # as the target prepared it: serialized, so that sending costs the generator as little as can be
Answer: TypeAlias = Any  # as it came; `Target.read` makes sense of it
Counters: TypeAlias = Mapping[str, float]  # what a server has counted since it was started


class TargetError(Exception):
    """The server cannot be measured; the message is one line."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One input of a request, as it comes from a file."""

    data: Any  # a text, a pair of texts, an image's bytes, a tensor by name
    name: str = ""  # of its file, or its line
    reference: str | None = None  # what should come back


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """Where the time of one request went, as the server says; None where it does not."""

    queue: float | None = None
    preprocess: float | None = None
    compute: float | None = None
    postprocess: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request."""

    code: str  # gRPC status by name: "OK", "RESOURCE_EXHAUSTED", ...
    sent: float  # the moment when the generator began to send
    received: float  # the moment when the whole answer was there, read as far as is needed here
    client_send: float | None = None  # how long sending kept the generator busy, where that can be told
    client_receive: float = 0.0  # how long reading the answer kept it busy
    server: ServerTimes | None = None
    tokens: int = 0  # of the answer
    token_times: tuple[float, ...] = ()  # moments when its pieces came, of streams; first is the first token
    answer: Answer = None  # None where it failed
    message: str = ""  # why it failed, one line

    @property
    def ok(self) -> bool:
        return self.code == OK


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the requests ask for. Empty members leave the choice to the server."""

    task: str  # a key of tasks.TASKS, or "infer": tensors of any model, of the Open Inference Protocol alone
    model: str = ""
    version: str = ""
    stream: bool = False  # pieces as they are made
    options: Mapping[str, Any] = field(default_factory=dict)  # of the task, such as beam_size, top_k, target_language
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of tensors, where the model leaves them open


class Caller(Protocol):
    """A connection of its own for a thread that sends again and again."""

    def send(self, request: Request) -> Outcome:
        """Send and wait; what fails is an outcome too."""
        ...

    def close(self) -> None:
        """Cancels what is under way. From any thread."""
        ...


class Target(Protocol):
    """A server. Made with `(settings: triptych_client.settings.Settings, wanted: Wanted)`; belongs to one event loop."""

    async def open(self) -> None:
        """Connect, and make sure that the model can be asked.

        Raises:
            TargetError: it cannot.
        """
        ...

    async def close(self) -> None:
        """Cancels what is under way."""
        ...

    async def describe(self) -> dict[str, str]:
        """What a report says of it: address, protocol, model, model_version, precision, devices, server; what is known."""
        ...

    def samples(self, count: int, seed: int) -> list[Sample]:
        """Inputs made up from what the model takes, for "infer"; empty where the target makes none. After `open`."""
        ...

    def prepare(self, samples: Sequence[Sample]) -> Request:
        """One request with these inputs, ready to be sent any number of times.

        Raises:
            TargetError: such inputs cannot be sent.
        """
        ...

    async def send(self, request: Request) -> Outcome:
        """Send and wait; what fails is an outcome too."""
        ...

    def caller(self) -> Caller | None:
        """For requests from a thread; None where only `send` can do them. After `open`."""
        ...

    def read(self, answer: Answer) -> list[str]:
        """What came back for each input, as references are written: a translation, the best label, the best token."""
        ...

    async def stats(self) -> Counters | None:
        """What the server itself has counted, where it can be asked; differences of two calls are of the time between.

        requests, failures, cached (of the requests); and summed seconds: total, queue, preprocess, compute, postprocess.
        """
        ...
