"""Calls and inferences for tests of observers."""

import time
from typing import Any

from triptych_serving.rpc.active_calls import ModelLeases
from triptych_serving.rpc.call_context import CallContext, ModelUse, Observer, Observers

SERVICE, METHOD = "triptych.v1.TranslationService", "Translate"
FULL = f"{SERVICE}/{METHOD}"
ROWS, TOKENS_IN, TOKENS_OUT = 2, 11, 8


def a_call(**members: Any) -> CallContext:
    """Make a call that has just arrived."""
    defaults = {
        "service": SERVICE,
        "method": METHOD,
        "method_type": "unary",
        "request_id": "request-1",
        "peer": "ipv4:192.0.2.7:1234",
        "metadata": {},
        "leases": ModelLeases(),
        "observers": Observers(),
    }
    return CallContext(**{**defaults, **members})


def a_use(call: CallContext, **members: Any) -> ModelUse:
    """Make a translation with 10 ms of preprocessing, 20 ms in the queue, 30 ms of prefill and 40 ms of decoding."""
    at = call.arrived
    stages = {"preprocess": (at, at + 0.01), "queue": (at + 0.01, at + 0.03), "prefill": (at + 0.03, at + 0.06)}
    defaults = {
        "model": "toy",
        "version": "1",
        "rows": ROWS,
        "tokens_in": TOKENS_IN,
        "tokens_out": TOKENS_OUT,
        "stages": {**stages, "decode": (at + 0.06, at + 0.1)},
        "first_token": at + 0.06,
    }
    use = ModelUse(**{**defaults, **members})
    call.uses.append(use)
    return use


def run_call(
    *observers: Observer, code: str = "OK", uses: int = 1, error: Exception | None = None, **members: Any
) -> CallContext:
    """Report a whole call to the observers."""
    call, everybody = a_call(**members), Observers(*observers)
    everybody.on_start(call)
    for _ in range(uses):
        everybody.on_use(call, a_use(call, failed=code != "OK"))
    call.code, call.error, call.ended = code, error, time.monotonic()
    everybody.on_end(call)
    return call
