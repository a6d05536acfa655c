"""What is asked when somebody wants to know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from triptych_serving.response_cache.cache import CacheCounters

if TYPE_CHECKING:
    from triptych_serving.models.model import Model
    from triptych_serving.repository.registry import Registry
    from triptych_serving.runtime.device import Device
    from triptych_serving.runtime.memory.budget import Budget


@dataclass(frozen=True)
class Sources:
    """The parts of a server that metrics and probes look at."""

    registry: Callable[[], Registry]
    ready: Callable[[], bool]  # whether the server takes requests
    methods: Iterable[str] = ()  # full names, "package.Service/Method", that metrics show from the start
    cache: CacheCounters = field(default_factory=CacheCounters)  # of answers
    budgets: Callable[[], Mapping[Device, Budget]] = dict  # memory of the GPUs

    def models(self) -> list[Model]:
        """Those that can serve."""
        return self.registry().ready
