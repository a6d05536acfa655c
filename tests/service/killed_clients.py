"""Clients that are killed while they read a stream: ADDRESS COUNT AT_ONCE. Run it in a process of its own, it forks."""

import os
import signal
import sys
from collections import deque
from typing import NoReturn

import grpc

from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2_grpc import TranslationServiceStub

SENTENCE = "The man sees the dog in the garden."
SENTENCES = 500


def die_while_reading(address: str) -> NoReturn:
    """Read a stream's first pieces, then be gone without a word."""
    channel = grpc.insecure_channel(address)
    request = translation_pb2.TranslateStreamRequest(contents=[SENTENCE] * SENTENCES)
    events = TranslationServiceStub(channel).TranslateStream(request)
    for _ in range(3):
        next(events)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still here")


def main(address: str, count: int, at_once: int) -> int:
    """How many were killed as they should be."""
    killed = 0
    living: deque[int] = deque()
    for _ in range(count):
        if len(living) == at_once:
            killed += wait_for(living.popleft())
        living.append(start(address))
    return killed + sum(map(wait_for, living))


def start(address: str) -> int:
    """A client's process. gRPC is imported but not used before the fork, which it would not survive."""
    if pid := os.fork():
        return pid
    try:
        die_while_reading(address)
    finally:
        os._exit(1)


def wait_for(pid: int) -> bool:
    status = os.waitpid(pid, 0)[1]
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


if __name__ == "__main__":
    print(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))  # noqa: T201
