"""The state of one gRPC call: caller, timing, the models that worked for it, and the observers that are told."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from grpc import aio

from triptych_serving.models.model import Model
from triptych_serving.rpc.active_calls import ModelLeases

logger = logging.getLogger(__name__)

GrpcContext = aio.ServicerContext[Any, Any]
Metadata = Mapping[str, str | bytes]
MethodType = Literal["unary", "server_stream", "bidi_stream"]
# Probes of the Open Inference Protocol. The responses say only whether the server is up.
PROBES = ("inference.GRPCInferenceService/ServerLive", "inference.GRPCInferenceService/ServerReady")
# What probes and tools call every few seconds: not traced, not limited, logged at level debug.
BACKGROUND = ("grpc.health.", "grpc.reflection.", *PROBES)


@dataclass(eq=False, slots=True)
class ModelUse:
    """One piece of work of a model: all of a unary call, or one message of a stream."""

    model: str  # names instead of the model itself, which an observer must not keep in memory
    version: str
    rows: int = 0
    tokens_in: int = 0
    tokens_out: int = 0  # of translations and generated texts
    # "preprocess", "queue", then "prefill" and "decode" or "inference", then "postprocess" -> (start, end), monotonic seconds.
    # Stages that were not reached are missing.
    stages: dict[str, tuple[float, float]] = field(default_factory=dict)
    first_token: float = 0.0  # monotonic seconds; of translations and generated texts
    cached: bool = False  # taken from the response cache or from an equal request
    failed: bool = False


@dataclass(eq=False, slots=True)
class CallContext:
    """One gRPC call."""

    service: str  # such as "triptych.v1.TranslationService"
    method: str  # such as "Translate"
    method_type: MethodType
    request_id: str
    peer: str  # in gRPC's notation: "ipv4:1.2.3.4:567"
    metadata: Metadata  # keys in lower case; the last of equal keys
    leases: ModelLeases = field(repr=False)
    observers: Observers = field(repr=False)
    arrived: float = field(default_factory=time.monotonic)
    ended: float = 0.0
    principal: str = ""  # name of the API key or certificate; empty without authentication
    uses: list[ModelUse] = field(default_factory=list)  # of a bidirectional stream only the last one
    code: str = ""  # name of the gRPC status, set when the call has ended
    error: BaseException | None = None  # until the observers have been told of the end
    full_method: str = field(init=False)  # such as "triptych.v1.TranslationService/Translate"

    def __post_init__(self) -> None:
        self.full_method = f"{self.service}/{self.method}"

    @property
    def is_background(self) -> bool:
        """True for health checks and reflection."""
        return is_background(self.full_method)


current_call: ContextVar[CallContext] = ContextVar("current_call")


def is_background(full_method: str) -> bool:
    """Return True for health checks and reflection, which do no work of a model."""
    return full_method.startswith(BACKGROUND)


class Guard(Protocol):
    """Decide which calls are admitted."""

    def concerns(self, service: str, method: str, method_type: MethodType) -> bool:
        """Return False if calls of a method are never rejected nor identified; asked once for each method."""

    def admit(self, call: CallContext, context: GrpcContext) -> AbstractContextManager[None] | None:
        """Admit a call; a returned context manager is exited when the call ends. Raises ServingError: the call is rejected."""


class Observer:
    """Receives the events of all calls, in the event loop: must not block."""

    def on_start(self, call: CallContext) -> None:
        """Handle a new call."""

    def on_use(self, call: CallContext, use: ModelUse) -> None:
        """Handle the end of a model's work for a call, successful or not."""

    def on_end(self, call: CallContext) -> None:
        """Handle the end of a call: `code`, `error` and `ended` are set."""


class Observers:
    """Notify several observers; an exception of one is logged and does not reach the call."""

    def __init__(self, *observers: Observer) -> None:
        self._on_start = [one.on_start for one in observers if type(one).on_start is not Observer.on_start]
        self._on_use = [one.on_use for one in observers if type(one).on_use is not Observer.on_use]
        self._on_end = [one.on_end for one in observers if type(one).on_end is not Observer.on_end]

    def on_start(self, call: CallContext) -> None:
        _notify(self._on_start, call)

    def on_use(self, call: CallContext, use: ModelUse) -> None:
        _notify(self._on_use, call, use)

    def on_end(self, call: CallContext) -> None:
        _notify(self._on_end, call)


class ModelUseScope:
    """Keep a model open while it works for the current call, and report the work to the observers.

    Enter it without an `await` after the model was found in the registry: an unload in between could close the model. It is a
    class because a generator as a context manager costs every call some time.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._call = current_call.get()
        self._use = ModelUse(model.name, str(model.version))

    def __enter__(self) -> ModelUse:
        call = self._call
        if call.method_type == "bidi_stream":
            call.uses.clear()
        call.uses.append(self._use)
        call.leases.acquire(self._model)
        return self._use

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._use.failed = self._use.failed or kind is not None
        try:
            self._call.observers.on_use(self._call, self._use)
        finally:
            self._call.leases.release(self._model)


def _notify(callbacks: Iterable[Callable[..., None]], *arguments: object) -> None:
    for callback in callbacks:
        try:
            callback(*arguments)
        except Exception:
            logger.exception("observer failed")
