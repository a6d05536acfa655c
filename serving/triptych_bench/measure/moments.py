"""The time line of a run."""

import math
from collections import defaultdict
from collections.abc import Sequence

from triptych_bench.load.log import Log, Record
from triptych_bench.measure.distribution import percentile
from triptych_bench.measure.steady import Span
from triptych_bench.results import Moment


def moments_of(log: Log, span: Span, seconds: float = 1.0) -> tuple[Moment, ...]:
    """One for each second since the run's start, up to the last answer; a second is steady if all of it is in `span`."""
    found: defaultdict[int, list[Record]] = defaultdict(list)
    for record in log.records:
        found[math.floor((record.received - log.started) / seconds)].append(record)
    return tuple(_moment(log.started, number, seconds, found[number], span) for number in range(max(found, default=-1) + 1))


def _moment(started: float, number: int, seconds: float, records: Sequence[Record], span: Span) -> Moment:
    latencies = sorted(record.latency for record in records if record.ok)
    start = started + number * seconds
    return Moment(
        start=number * seconds,
        completed=len(latencies),
        failed=len(records) - len(latencies),
        p50=percentile(latencies, 50) if latencies else None,
        p99=percentile(latencies, 99) if latencies else None,
        steady=span.start <= start and start + seconds <= span.end,
    )
