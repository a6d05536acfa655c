"""Kill clients while they read a stream. Usage: killed_clients.py ADDRESS COUNT AT_ONCE, in a process of its own (it forks)."""

import os
import signal
import sys
from collections import deque
from typing import NoReturn

import grpc

from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2_grpc import TranslationServiceStub

SENTENCE = "The man sees the dog in the garden."
SENTENCES = 100


def die_while_reading(address: str) -> NoReturn:
    """Read the first pieces of a stream, then kill this process."""
    channel = grpc.insecure_channel(address)
    request = translation_pb2.TranslateStreamRequest(contents=[SENTENCE] * SENTENCES)
    events = TranslationServiceStub(channel).TranslateStream(request)
    for _ in range(3):
        next(events)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("survived SIGKILL")


def main(address: str, count: int, at_once: int) -> int:
    """Start and kill clients; return the number killed by SIGKILL."""
    killed = 0
    living: deque[int] = deque()
    for _ in range(count):
        if len(living) == at_once:
            killed += wait_for(living.popleft())
        living.append(start(address))
    return killed + sum(map(wait_for, living))


def start(address: str) -> int:
    """Fork a client process. gRPC must not be used before the fork: it would not survive it."""
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
