"""What the server itself counts, asked before and after a run."""

from collections.abc import Mapping

from triptych_bench.server.prometheus import MetricsMeter, counters_of
from triptych_bench.target import Counters, Target, TargetError


class Counting:
    """Of the metrics page where there is one with Triptych's names, else what the target can ask for.

    Args:
        target: open.
        meter: of the page.
        model: whose; empty is all.
    """

    def __init__(self, target: Target, meter: MetricsMeter | None, model: str) -> None:
        self._target, self._meter, self._model = target, meter, model
        self.source = "ModelStatistics"

    async def ask(self) -> Counters | None:
        """None: the server says nothing, or is there no more."""
        if self._meter is not None:
            try:
                counters = counters_of(await self._meter.page(), self._model)
            except TargetError:
                counters = None
            if counters is not None:
                self.source = self._meter.source
                return counters
        try:
            return await self._target.stats()
        except TargetError:
            return None

    async def since(self, before: Counters) -> Mapping[str, float]:
        """What came on top; empty where the server has begun anew, or says nothing any more."""
        after = await self.ask()
        if after is None:
            return {}
        more = {name: after[name] - before[name] for name in after if name in before}
        return more if all(value >= 0 for value in more.values()) else {}
