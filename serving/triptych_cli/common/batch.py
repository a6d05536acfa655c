"""Inputs in batches, where a bad one is named and the others are done all the same."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from triptych_embedded.request import InputError

Input = TypeVar("Input")
Result = TypeVar("Result")


def batches(inputs: Iterable[Input], size: int) -> Iterator[list[Input]]:
    """Lists of at most `size`, in order."""
    remaining = iter(inputs)
    while batch := list(islice(remaining, size)):
        yield batch


def run_each(run: Callable[[Sequence[Input]], Sequence[Result]], inputs: Sequence[Input]) -> list[Result | InputError]:
    """The result of each input, or what is wrong with it. All at once; one by one where the call names a bad one."""
    if not inputs:
        return []
    try:
        return list(run(inputs))
    except InputError as error:
        if len(inputs) == 1:
            return [error]
    return [outcome for each in inputs for outcome in run_each(run, [each])]
