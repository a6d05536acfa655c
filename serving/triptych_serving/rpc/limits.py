"""How much a server takes on: queues, clients, messages."""

import math
from dataclasses import dataclass

from triptych_serving.scheduling.admission import QueueLimits

_QUEUE = QueueLimits()


@dataclass(frozen=True)
class LimitOptions:
    """What is above a limit is refused at once, with RESOURCE_EXHAUSTED.

    Raises:
        ValueError: a limit leaves no room for anything.
    """

    # Of each model. What runs does not count. A text has a row for each of its sentences.
    queue_requests: int = _QUEUE.waiting_calls
    queue_rows: int = _QUEUE.waiting_rows
    queue_tokens: int = _QUEUE.waiting_tokens
    queue_seconds: float = math.inf  # a request is refused whose wait is expected to be longer
    refuse_late: bool = True  # and so is one that is not expected to be answered before its deadline
    requests_per_client: int = 0  # at once; a stream is one; 0: any number
    message_bytes: int = 64 << 20  # either way
    documents: int = 8  # that are translated at a time, of all models
    document_bytes: int = 64 << 20  # of each

    def __post_init__(self) -> None:
        for name in (
            "queue_requests",
            "queue_rows",
            "queue_tokens",
            "queue_seconds",
            "message_bytes",
            "documents",
            "document_bytes",
        ):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be above 0")
        if self.requests_per_client < 0:
            raise ValueError(f"requests_per_client is {self.requests_per_client}, it must be 0 or above")

    @property
    def queue(self) -> QueueLimits:
        """What bounds the queue of one model."""
        return QueueLimits(self.queue_rows, self.queue_tokens, self.queue_requests, self.queue_seconds, self.refuse_late)
