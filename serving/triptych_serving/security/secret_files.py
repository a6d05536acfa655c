"""Files with secrets: reloaded when they change, and reported when every user of the machine may read them."""

import logging
import stat
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from triptych_serving.errors import SecurityError

logger = logging.getLogger(__name__)

Value = TypeVar("Value")
Signature = tuple[tuple[int, int, int, int] | None, ...]

FRESH_SECONDS = 2.0  # a file system may give two changes that are this close the same time
REREAD_SECONDS = 1.0  # least time between two reads of files whose times have not changed: certificates take 40 ms


class ReloadedFiles(Generic[Value]):
    """A value read from files, and read again when they change. A bad change is logged and the last value is kept. Thread-safe.

    Args:
        name: names the value in the log.
        read: reads the value; raises SecurityError.
        every_seconds: least time between two checks of the files' times.
        on_change: called with a new value that is used from now on.

    Raises:
        SecurityError: the files cannot be used at the start.
    """

    def __init__(
        self,
        name: str,
        paths: Sequence[Path],
        read: Callable[[], Value],
        every_seconds: float = 0.0,
        on_change: Callable[[Value], None] = lambda _: None,
    ) -> None:
        self._name = name
        self._paths = paths
        self._read = read
        self._every_seconds = every_seconds
        self._on_change = on_change
        self._lock = threading.Lock()
        self._fault = ""
        self._checked = time.monotonic()
        self._signature = self._sign()
        self._read_at = time.time()
        self._value = read()

    def get(self) -> Value:
        """Return the current value."""
        with self._lock:
            if time.monotonic() - self._checked >= self._every_seconds:
                self._check()
            return self._value

    def _check(self) -> None:
        self._checked = time.monotonic()
        signature = self._sign()
        if signature == self._signature:
            if not self._fault and not _is_fresh(signature, self._read_at):
                return
            if abs(time.time() - self._read_at) < REREAD_SECONDS:
                return
        self._signature, self._read_at = signature, time.time()
        try:
            value = self._read()
        except (SecurityError, OSError) as error:  # ssl reads the files by name: one may have just gone
            if str(error) != self._fault:  # log each fault once, not at each check
                logger.error("%s: reload failed, keeping the last good version: %s", self._name, error)
            self._fault = str(error)
            return
        if value != self._value or self._fault:
            self._value, self._fault = value, ""
            logger.info("%s: reloaded", self._name)
            self._on_change(value)

    def _sign(self) -> Signature:
        return tuple(_sign(path) for path in self._paths)


def warn_if_open(path: Path) -> None:
    """Log a warning if every user of the machine may read or change a plain file."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    allowed = [word for bit, word in ((stat.S_IROTH, "read"), (stat.S_IWOTH, "change")) if mode & bit and stat.S_ISREG(mode)]
    if allowed:
        logger.warning("%s: every user of this machine may %s it; run: chmod 600 %s", path, " and ".join(allowed), path)


def check_plain(path: Path) -> None:
    """Refuse what is not a plain file: opening a FIFO waits for a writer.

    Raises:
        SecurityError: it is something else.
        OSError: it is missing.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise SecurityError(f"{path}: not a plain file")


def _sign(path: Path) -> tuple[int, int, int, int] | None:
    """Return what differs after a change, of the file that links lead to; None without a file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _is_fresh(signature: Signature, read_at: float) -> bool:
    """Return True if a later change may have the same times. The second number is ctime, which only the kernel sets."""
    return any(file is not None and abs(read_at - file[1] / 1e9) < FRESH_SECONDS for file in signature)
