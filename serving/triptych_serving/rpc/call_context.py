"""One call as the server sees it: who asked, which models worked for it, where the time went."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from grpc import aio

from triptych_serving.models.model import Model
from triptych_serving.rpc.leases import Leases

logger = logging.getLogger(__name__)

Context = aio.ServicerContext[Any, Any]
Kind = Literal["unary", "server_stream", "bidi_stream"]
Metadata = Mapping[str, str | bytes]
FAILED = "an observer failed"


@dataclass(eq=False, slots=True)
class Use:
    """One piece of work that a model did: all of a unary call, or one message of a stream."""

    model: str  # names, not the model itself: who remembers a call shall not keep a model in memory
    version: str
    rows: int = 0
    tokens_in: int = 0
    tokens_out: int = 0  # translations alone
    # "preprocess", "queue", then "prefill" and "decode" or "inference", then "postprocess" -> (start, end), monotonic seconds;
    # what it never came to is missing.
    stages: dict[str, tuple[float, float]] = field(default_factory=dict)
    first_token: float = 0.0  # monotonic seconds; translations alone
    cached: bool = False  # the answer was there already
    failed: bool = False


@dataclass(eq=False, slots=True)
class Rpc:
    """One call."""

    service: str  # such as "triptych.v1.TranslationService"
    method: str  # such as "Translate"
    kind: Kind
    request_id: str
    peer: str  # as gRPC writes it: "ipv4:1.2.3.4:567"
    metadata: Metadata  # keys in lower case; of equal ones the last
    leases: Leases = field(repr=False)
    observers: Observers = field(repr=False)
    arrived: float = field(default_factory=time.monotonic)
    ended: float = 0.0
    principal: str = ""  # name of the API key or of the certificate; empty where nobody asked for one
    uses: list[Use] = field(default_factory=list)  # of a stream of requests only the last
    code: str = ""  # name of the gRPC status, once it has ended
    error: BaseException | None = None

    @property
    def path(self) -> str:
        """As gRPC has it: "/triptych.v1.TranslationService/Translate"."""
        return f"/{self.service}/{self.method}"


# Of the call that is being handled.
rpc_now: ContextVar[Rpc] = ContextVar("rpc_now")


class Guard(Protocol):
    """Says which calls may pass."""

    def admit(self, rpc: Rpc, context: Context) -> AbstractContextManager[None] | None:
        """Let a call in; the manager is left when the call ends. None: nothing is to be done then.

        Raises:
            ServingError: it may not pass.
        """


class Observer(Protocol):
    """Hears of every call, in the event loop: be quick."""

    def on_start(self, rpc: Rpc) -> None:
        """It has come."""

    def on_use(self, rpc: Rpc, use: Use) -> None:
        """A model has done its work for it, or failed to."""

    def on_end(self, rpc: Rpc) -> None:
        """It is over: `code`, `error` and `ended` are set."""


class Observers:
    """Several as one. What goes wrong in them is logged, and no caller's business."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def on_start(self, rpc: Rpc) -> None:
        for observer in self._observers:
            try:
                observer.on_start(rpc)
            except Exception:
                logger.exception(FAILED)

    def on_use(self, rpc: Rpc, use: Use) -> None:
        for observer in self._observers:
            try:
                observer.on_use(rpc, use)
            except Exception:
                logger.exception(FAILED)

    def on_end(self, rpc: Rpc) -> None:
        for observer in self._observers:
            try:
                observer.on_end(rpc)
            except Exception:
                logger.exception(FAILED)


class using:  # noqa: N801 - reads as what it does; a class, since generators as context managers cost each call some time
    """A model works for the call that is being handled, and is not closed meanwhile.

    Enter it without an `await` after the model was found in the registry.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._rpc = rpc_now.get()
        self._use = Use(model.name, str(model.version))

    def __enter__(self) -> Use:
        rpc = self._rpc
        rpc.uses[:] = [*rpc.uses, self._use] if rpc.kind != "bidi_stream" else [self._use]
        rpc.leases.take(self._model)
        return self._use

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._use.failed = self._use.failed or kind is not None
        try:
            self._rpc.observers.on_use(self._rpc, self._use)
        finally:
            self._rpc.leases.give_back(self._model)
