"""Single flight: one computation that several equal requests wait for."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

from triptych_serving.errors import DeadlineError, InvalidInputError, UnsupportedError

# Errors of the request itself: an equal request to the same model gets the same one.
OWN_FAULTS = (InvalidInputError, UnsupportedError)

Waiter = asyncio.Future[bytes | None]


class SingleFlight:
    """Led by the first request; the others follow. Used in one event loop alone.

    Args:
        on_over: called when nobody leads any more; no request may follow from then on.
    """

    def __init__(self, on_over: Callable[[], object]) -> None:
        self._on_over = on_over
        self._waiters: dict[Waiter, float] = {}  # with their deadlines, clock seconds

    @contextmanager
    def lead(self) -> Iterator[Callable[[bytes], None]]:
        """Compute inside the block, and pass the result to the function that it yields.

        If the block is cancelled, or fails for a reason that need not concern the followers, one of them leads from then on.
        """
        try:
            yield self._finish
        except OWN_FAULTS as error:
            self._fail(error)
            raise
        except BaseException:
            self._hand_over()
            raise

    async def follow(self, deadline: float | None) -> bytes | None:
        """Wait for the leader's result; None: the caller must lead from here on, at once.

        Args:
            deadline: the caller's own, clock seconds.

        Raises:
            DeadlineError: the deadline passed.
            ServingError: the request itself is invalid.
        """
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = inf if deadline is None else deadline
        try:
            async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
                return await waiter
        except TimeoutError:
            self._decline(waiter)
            raise DeadlineError("the deadline passed while an equal request was being answered") from None
        except asyncio.CancelledError:
            self._decline(waiter)
            raise
        finally:
            self._waiters.pop(waiter, None)

    def _finish(self, value: bytes) -> None:
        self._on_over()
        for waiter in self._waiting():
            waiter.set_result(value)

    def _fail(self, error: Exception) -> None:
        self._on_over()
        for waiter in self._waiting():
            waiter.set_exception(error)

    def _hand_over(self) -> None:
        """Let the follower with the latest deadline lead."""
        waiting = self._waiting()
        if waiting:
            max(waiting, key=self._waiters.__getitem__).set_result(None)
        else:
            self._on_over()

    def _decline(self, waiter: Waiter) -> None:
        """Remove a follower, which may have been told to lead in the same moment."""
        if waiter.done() and not waiter.cancelled() and waiter.exception() is None and waiter.result() is None:
            self._hand_over()

    def _waiting(self) -> list[Waiter]:
        return [waiter for waiter in self._waiters if not waiter.done()]
