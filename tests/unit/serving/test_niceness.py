"""Engines give way to whoever reads requests and writes answers."""

import os
import sys
import threading
from collections.abc import Callable

import pytest

from triptych_serving.niceness import ENGINE_NICENESS, MOST, give_way

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness of their own on Linux alone")


def in_thread(function: Callable[[], None]) -> int:
    """The thread's niceness behind it."""
    found: list[int] = []

    def run() -> None:
        function()
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def own() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_the_calling_thread_alone_gives_way() -> None:
    before = own()
    assert in_thread(give_way) == min(MOST, before + ENGINE_NICENESS)
    assert own() == before


def test_it_cannot_give_way_beyond_the_last_place() -> None:
    def often() -> None:
        for _ in range(10):
            give_way()

    assert in_thread(often) == MOST


def test_where_it_is_forbidden_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", forbidden)
    assert in_thread(give_way) == own()
