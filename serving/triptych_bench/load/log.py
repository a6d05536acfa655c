"""The log of a run: one record per request."""

import time

from triptych_bench.target import Outcome, RawResponse

HOPELESS_FAILURES = 20  # with fewer failures, the first responses may just take longer


class Log:
    """The records of a run, in the order of the responses.

    Args:
        keeps: Keep the first response to each batch, to compute the quality.
    """

    def __init__(self, keeps: bool = False) -> None:
        self.started = time.perf_counter()
        self.records: list[Outcome] = []
        self.responses: dict[int, RawResponse] = {}
        self.messages: dict[str, str] = {}  # first error message of each code
        self.dues: list[float] = []  # scheduled moments of an open loop, ascending
        self.thread_seconds: dict[int, float] = {}  # CPU time of each sending thread
        self._keeps = keeps

    def end(self, batch: int, due: float | None, outcome: Outcome) -> None:
        """Note the outcome of a request; `due` is None in closed loops."""
        outcome.batch, outcome.due = batch, outcome.sent if due is None else due
        if not outcome.ok:
            self.messages.setdefault(outcome.code, outcome.message)
        elif self._keeps and batch not in self.responses:
            self.responses[batch] = outcome.response
        outcome.response = None  # the responses of a long run would fill the memory
        self.records.append(outcome)

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
