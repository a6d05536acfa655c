"""Calls as the server would make them."""

import time
from typing import Any

from triptych_serving.rpc.active_calls import ModelLeases
from triptych_serving.rpc.call_context import CallContext, ModelUse, Observer, Observers

SERVICE, METHOD = "triptych.v1.TranslationService", "Translate"
FULL = f"{SERVICE}/{METHOD}"
ROWS, TOKENS_IN, TOKENS_OUT = 2, 11, 8


def a_call(**members: Any) -> CallContext:
    """One that has begun."""
    return CallContext(
        **{
            "service": SERVICE,
            "method": METHOD,
            "method_type": "unary",
            "request_id": "request-1",
            "peer": "ipv4:192.0.2.7:1234",
            "metadata": {},
            "leases": ModelLeases(),
            "observers": Observers(),
            **members,
        }
    )


def a_use(rpc: CallContext, **members: Any) -> ModelUse:
    """A translation, whose times are exact: 10 ms of preprocessing, 20 in the queue, 30 of prefill and 40 of decoding."""
    at = rpc.arrived
    stages = {"preprocess": (at, at + 0.01), "queue": (at + 0.01, at + 0.03), "prefill": (at + 0.03, at + 0.06)}
    stages |= {"decode": (at + 0.06, at + 0.1)}
    use = ModelUse(
        **{
            "model": "toy",
            "version": "1",
            "rows": ROWS,
            "tokens_in": TOKENS_IN,
            "tokens_out": TOKENS_OUT,
            "stages": stages,
            "first_token": at + 0.06,
            **members,
        }
    )
    rpc.uses.append(use)
    return use


def run_call(
    *observers: Observer, code: str = "OK", uses: int = 1, error: Exception | None = None, **members: Any
) -> CallContext:
    """All of a call."""
    rpc, all_of_them = a_call(**members), Observers(*observers)
    all_of_them.on_start(rpc)
    for _ in range(uses):
        all_of_them.on_use(rpc, a_use(rpc, failed=code != "OK"))
    rpc.code, rpc.error, rpc.ended = code, error, time.monotonic()
    all_of_them.on_end(rpc)
    return rpc
