"""A pool of sessions of one graph, each run by one thread at a time."""

from collections.abc import Mapping, Sequence
from queue import SimpleQueue

from triptych_serving.runtime.memory import Memory
from triptych_serving.runtime.session import Array, RunStop, Session


class SessionPool:
    """A pool of sessions. Thread-safe, except `close`, which must come last.

    Args:
        sessions: at least one, not referenced elsewhere.
        memories: streams of the sessions that `close` closes, too.
    """

    def __init__(self, sessions: Sequence[Session], memories: Sequence[Memory] = ()) -> None:
        self._idle: SimpleQueue[Session] = SimpleQueue()
        for session in sessions:
            self._idle.put(session)
        self._memories = memories

    def run(
        self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None, stop: RunStop | None = None
    ) -> list[Array]:
        """Run the session that has been idle longest; waits while all of them are busy.

        Raises:
            EngineError: the runtime failed, or was stopped.
        """
        session = self._idle.get()
        try:
            return session.run(inputs, outputs, stop)
        finally:
            self._idle.put(session)

    def close(self) -> None:
        """Free the sessions, then their streams."""
        while not self._idle.empty():
            self._idle.get()
        for memory in self._memories:
            memory.close()
