"""Files that are read again when they have changed."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from triptych_serving.errors import SecurityError

logger = logging.getLogger(__name__)

Value = TypeVar("Value")
Signature = tuple[tuple[int, int, int, int] | None, ...]

FRESH_SECONDS = 2.0  # so close together, a file system may give two changes one time


class Reloading(Generic[Value]):
    """What stands in some files. A change that cannot be used is logged, and what was there before stays in force.

    Threads may share it.

    Args:
        what: its name in the log.
        paths: the files.
        read: makes a value of them; raises SecurityError.
        every_seconds: how long it takes at most until a change is noticed; a lookup of the files' times is saved so often.

    Raises:
        SecurityError: the files cannot be used at the very beginning.
    """

    def __init__(self, what: str, paths: Sequence[Path], read: Callable[[], Value], every_seconds: float = 0.0) -> None:
        self._what = what
        self._paths = paths
        self._read = read
        self._every_seconds = every_seconds
        self._lock = threading.Lock()
        self._fault = ""
        self._looked = time.monotonic()
        self._signature = self._sign()
        self._value = read()

    def get(self) -> Value:
        """The present value."""
        with self._lock:
            if time.monotonic() - self._looked >= self._every_seconds:
                self._look()
            return self._value

    def _look(self) -> None:
        self._looked = time.monotonic()
        signature = self._sign()
        if signature == self._signature and not self._fault and not _fresh(signature):
            return
        self._signature = signature
        try:
            value = self._read()
        except SecurityError as error:
            self._report(str(error))
            return
        if value != self._value or self._fault:
            self._value, self._fault = value, ""
            logger.info("%s: read again, in force from now on", self._what)

    def _report(self, fault: str) -> None:
        """Once for each fault, not at each look."""
        if fault != self._fault:
            logger.error("%s: a change is not used, what was read before stays in force: %s", self._what, fault)
        self._fault = fault

    def _sign(self) -> Signature:
        return tuple(_sign(path) for path in self._paths)


def _sign(path: Path) -> tuple[int, int, int, int] | None:
    """What differs after a change, of the file that links lead to; None: there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _fresh(signature: Signature) -> bool:
    """Whether another change may hide behind this one. The second number is the one that only the kernel sets."""
    now = time.time_ns()
    return any(file is not None and abs(now - file[1]) < FRESH_SECONDS * 1e9 for file in signature)
