"""Who answers a job's asks."""

from collections.abc import Sequence
from typing import Protocol, Self

from triptych_documents.sentences import Refusal, SentenceRequest, SentenceTranslation
from triptych_embedded.identity import Identity

Outcome = tuple[SentenceRequest, SentenceTranslation | Refusal]


class Translating(Protocol):
    """Takes asks at any time and gives the outcomes in any order: nobody waits for the end of a batch. Of one thread.

    A context manager; leaving it drops what is under way.
    """

    def __enter__(self) -> Self: ...

    def __exit__(self, *details: object) -> None: ...

    @property
    def identity(self) -> Identity:
        """What the answers depend on."""
        ...

    @property
    def window(self) -> int:
        """With so many asks under way it has enough to do."""
        ...

    def submit(self, asks: Sequence[SentenceRequest]) -> None:
        """Take them.

        Raises:
            BackendError: no asks can be answered any more.
        """
        ...

    def take(self, patience_seconds: float) -> Sequence[Outcome]:
        """What has been answered since the last time; waits for some at most so long, and may have none even then.

        Raises:
            BackendError: no asks can be answered any more.
        """
        ...
