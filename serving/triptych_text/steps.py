"""Long work in small steps: between two of them it can be stopped, and other work gets its turn."""

from collections.abc import Generator
from time import monotonic
from typing import TypeVar

Result = TypeVar("Result")
Steps = Generator[None, None, Result]  # each step takes some milliseconds at most


def finish(steps: Steps[Result]) -> Result:
    """Run all steps and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def advance(steps: Steps[Result], seconds: float) -> tuple[Result] | None:
    """Run steps for about so many seconds, at least one; return the result, in a tuple, if that was the last one."""
    until = monotonic() + seconds
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return (end.value,)
        if monotonic() >= until:
            return None
