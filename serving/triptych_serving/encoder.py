"""How models that run once are loaded, and what one request asks of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from triptych_serving.oneshot import OneShotOptions
from triptych_serving.processor import usable_cpus
from triptych_serving.row import Item

Result = TypeVar("Result")


@dataclass(frozen=True)
class EncoderOptions:
    """How a model of the text or image family is loaded."""

    precision: str | None = None  # None: the bundle's default
    threads: int = 1  # inside one run of the graph; 1 runs in the engine's own thread
    engine: OneShotOptions = field(default_factory=lambda: OneShotOptions(runs=usable_cpus()))


DEFAULTS = EncoderOptions()


@dataclass(frozen=True)
class Work(Generic[Result]):
    """One request, checked and tokenized: `items` go to the engine; once they are done, `read` has the results, in order."""

    items: Sequence[Item]
    read: Callable[[], list[Result]]
    size: int  # characters that `read` goes through, roughly
    field: str = "contents"  # the request's, that the items come from
