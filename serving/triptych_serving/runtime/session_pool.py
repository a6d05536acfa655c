"""A pool of sessions of one graph, each run by one thread at a time."""

from collections.abc import Mapping, Sequence
from queue import SimpleQueue

from triptych_serving.runtime.session import Array, Session


class SessionPool:
    """A pool of sessions. Thread-safe.

    Args:
        sessions: at least one.
    """

    def __init__(self, sessions: Sequence[Session]) -> None:
        self.count = len(sessions)
        self._idle: SimpleQueue[Session] = SimpleQueue()
        for session in sessions:
            self._idle.put(session)

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None) -> list[Array]:
        """Run the session that has been idle longest; waits while all of them are busy.

        Raises:
            EngineError: the runtime failed.
        """
        session = self._idle.get()
        try:
            return session.run(inputs, outputs)
        finally:
            self._idle.put(session)
