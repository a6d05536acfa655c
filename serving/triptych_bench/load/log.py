"""What became of each request of a run."""

import time
from typing import NamedTuple

from triptych_bench.target import Answer, Outcome, ServerTimes

MANY = 20  # failures: of fewer it may be that the answers just take longer


class Record(NamedTuple):
    """One request; moments are of `time.perf_counter`, all in seconds."""

    batch: int  # which
    due: float  # when it should have been sent; of closed loops, when it was
    sent: float
    received: float
    ok: bool
    code: str
    client_send: float | None
    client_receive: float
    server: ServerTimes | None
    tokens: int
    token_times: tuple[float, ...]

    @property
    def latency(self) -> float:
        """From when it was due."""
        return self.received - self.due


class Log:
    """Grows while a load runs.

    Args:
        keeps: one answer of each batch is kept, to look at what came back.
    """

    def __init__(self, keeps: bool = False) -> None:
        self.started = time.perf_counter()
        self.records: list[Record] = []
        self.answers: dict[int, Answer] = {}
        self.messages: dict[str, str] = {}  # by code, the first
        self.dues: list[float] = []  # of open loops, ascending
        self.thread_seconds: dict[int, float] = {}  # CPU, of each thread that sends
        self._keeps = keeps

    def begin(self, due: float) -> None:
        """A request of an open loop is about to be sent."""
        self.dues.append(due)

    def end(self, batch: int, due: float | None, outcome: Outcome) -> None:
        """It has been answered or has failed; `due` is None in closed loops."""
        sent = outcome.sent
        self.records.append(
            Record(
                batch,
                sent if due is None else due,
                sent,
                outcome.received,
                outcome.ok,
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
        elif self._keeps and batch not in self.answers:
            self.answers[batch] = outcome.answer

    @property
    def sending_seconds(self) -> float:
        """CPU of all threads that send beside the event loop."""
        return sum(list(self.thread_seconds.values()))  # a copy: they go on meanwhile

    @property
    def hopeless(self) -> str:
        """The first failure, where there was nothing else for many requests."""
        if len(self.records) < MANY or not self.messages or any(record.ok for record in self.records):
            return ""
        code, message = next(iter(self.messages.items()))
        return f"{code}: {message}"
