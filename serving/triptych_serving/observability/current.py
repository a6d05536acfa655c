"""The call that is being handled, as logs name it."""

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallIds:
    """What finds a call again."""

    request_id: str
    trace_id: str = ""  # 32 hexadecimal digits; empty where nobody traces

    def fields(self) -> dict[str, str]:
        """As JSON has them."""
        trace = {"trace_id": self.trace_id} if self.trace_id else {}
        return {"request_id": self.request_id, **trace}


call_now: ContextVar[CallIds | None] = ContextVar("call_now", default=None)
