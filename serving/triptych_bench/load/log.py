"""The log of a run: one record per request."""

import time
from typing import NamedTuple

from triptych_bench.target import OK, Outcome, RawResponse, ServerTimes

HOPELESS_FAILURES = 20  # with fewer failures, the first responses may just take longer


class Record(NamedTuple):
    """One request; moments are of `time.perf_counter`, in seconds."""

    batch: int  # index of the batch
    due: float  # scheduled moment; in closed loops, the moment of sending
    sent: float
    received: float
    code: str
    client_send: float | None
    client_receive: float
    server: ServerTimes | None
    tokens: int
    token_times: tuple[float, ...]

    @property
    def ok(self) -> bool:
        return self.code == OK

    @property
    def latency(self) -> float:
        """Seconds from the scheduled moment to the response."""
        return self.received - self.due


class Log:
    """The records of a run, in the order of the responses.

    Args:
        keeps: Keep the first response to each batch, to compute the quality.
    """

    def __init__(self, keeps: bool = False) -> None:
        self.started = time.perf_counter()
        self.records: list[Record] = []
        self.responses: dict[int, RawResponse] = {}
        self.messages: dict[str, str] = {}  # first error message of each code
        self.dues: list[float] = []  # scheduled moments of an open loop, ascending
        self.thread_seconds: dict[int, float] = {}  # CPU time of each sending thread
        self._keeps = keeps

    def end(self, batch: int, due: float | None, outcome: Outcome) -> None:
        """Note the outcome of a request; `due` is None in closed loops."""
        sent = outcome.sent
        self.records.append(
            Record(
                batch,
                sent if due is None else due,
                sent,
                outcome.received,
                outcome.code,
                outcome.client_send,
                outcome.client_receive,
                outcome.server,
                outcome.tokens,
                outcome.token_times,
            )
        )
        if not outcome.ok:
            self.messages.setdefault(outcome.code, outcome.message)
        elif self._keeps and batch not in self.responses:
            self.responses[batch] = outcome.response

    @property
    def sending_seconds(self) -> float:
        """CPU time of all sending threads except the event loop's."""
        return sum(list(self.thread_seconds.values()))  # a copy: the threads are running

    @property
    def hopeless(self) -> str:
        """The first error message if many requests were sent and all failed, else an empty string."""
        if len(self.records) < HOPELESS_FAILURES or not self.messages or any(record.ok for record in self.records):
            return ""
        code, message = next(iter(self.messages.items()))
        return f"{code}: {message}"
