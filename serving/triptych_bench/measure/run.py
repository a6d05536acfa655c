"""From a log to a run of the report."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from triptych_bench.load.cost import Cost
from triptych_bench.load.feed import Batch
from triptych_bench.load.log import Log, Record
from triptych_bench.measure.distribution import distribution, percentile
from triptych_bench.measure.moments import moments_of
from triptych_bench.measure.parts import parts_of
from triptych_bench.measure.steady import Span
from triptych_bench.results import Counted, Distribution, Generator, Resources, Run

BUSY = 0.85  # of one CPU: an event loop with more to do than this is late with everything
LATE_SECONDS = 0.002  # p99 of how late requests may always be sent
GENERATOR = "the load generator"  # is in the problem of every run that it was the limit of
LATE = f"{GENERATOR} sent"  # begins a run's problem
LATE_SHARE = 0.1  # or this much of the latency's p99


@dataclass(frozen=True, kw_only=True)
class Load:
    """One load, as a run of the report names it."""

    name: str
    scenario: str
    concurrency: int | None = None
    rate: float | None = None


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Of one run, beside its log."""

    span: Span  # what counts
    steady: bool
    cost: Cost
    resources: Resources | None = None
    counted: Counted | None = None
    counters: Mapping[str, float] = field(default_factory=dict)  # that the server counted meanwhile
    problems: tuple[str, ...] = ()


def run_of(load: Load, log: Log, batches: Sequence[Batch], seen: Observed, limit: float | None) -> Run:
    """Latencies are of the requests that were due in the span, rates of the answers that came in it."""
    is_open, span = load.rate is not None, seen.span
    due = [record for record in log.records if span.has(record.due if is_open else record.received)]
    came = [record for record in log.records if record.ok and span.has(record.received)]
    answered = [record for record in due if record.ok]
    failed = Counter(record.code for record in due if not record.ok)
    latency = distribution(record.latency for record in answered)
    ended = sum(span.has(record.received) for record in log.records)
    generator = _generator(seen.cost, ended / span.seconds, due if is_open else ())
    problems = (*seen.problems, *_failures(failed, len(due), log), *_own_faults(seen.cost, generator, latency))
    streamed = [record for record in answered if record.token_times]
    within = [record for record in came if limit is not None and record.latency <= limit]
    return Run(
        name=load.name,
        scenario=load.scenario,
        concurrency=load.concurrency,
        offered_rate=load.rate,
        inputs_per_request=max(len(batch.samples) for batch in batches),
        seconds=span.seconds,
        steady=seen.steady,
        completed=len(answered),
        failed=dict(failed),
        throughput=sum(len(batches[record.batch].samples) for record in came) / span.seconds,
        request_rate=len(came) / span.seconds,
        goodput=len(within) / span.seconds if limit is not None else None,
        latency_limit=limit,
        latency=latency,
        late=sum(record.latency > limit for record in answered) if limit is not None else None,
        service_time=_service_time(answered),
        first_token=distribution(record.token_times[0] - record.due for record in streamed) if streamed else None,
        inter_token=_inter_token([record for record in streamed if len(batches[record.batch].samples) == 1]),
        output_tokens=_rate(came, span),
        parts=parts_of(answered, seen.counters),
        resources=seen.resources,
        generator=generator,
        counted=seen.counted,
        moments=moments_of(log, span),
        valid=not problems and bool(answered),
        problem="; ".join(problems) or ("" if answered else "no request was answered"),
    )


def counted_of(source: str, counters: Mapping[str, float], log: Log) -> Counted:
    """What the server counted from the first request to the last, beside what this client saw."""
    answered = [record for record in log.records if record.ok]
    requests = round(counters.get("requests", 0.0))
    mean = math.fsum(record.received - record.sent for record in answered) / len(answered) if answered else None
    total = counters.get("total")
    server_mean = total / requests if requests and total is not None else None
    return Counted(
        source=source,
        requests=requests,
        expected=len(answered),
        mean_seconds=server_mean,
        expected_seconds=mean,
        cached=round(counters["cached"]) if "cached" in counters else None,
    )


def _service_time(records: Sequence[Record]) -> Distribution | None:
    """None where every request was sent at the very moment that it was due."""
    if all(record.sent == record.due for record in records):
        return None
    return distribution(record.received - record.sent for record in records)


def _inter_token(records: Sequence[Record]) -> Distribution | None:
    """Of requests of one input, whose pieces have no others between them; a text in one piece has no time between tokens."""
    values = [_between(record) for record in records if record.tokens > 1 and len(record.token_times) > 1]
    return distribution(values) if values else None


def _between(record: Record) -> float:
    """From the first token to the last, for each token but the first."""
    return (record.token_times[-1] - record.token_times[0]) / (record.tokens - 1)


def _rate(records: Sequence[Record], span: Span) -> float | None:
    tokens = sum(record.tokens for record in records)
    return tokens / span.seconds if tokens else None


def _generator(cost: Cost, rate: float, due: Sequence[Record]) -> Generator:
    """`rate` is of requests that ended, a second."""
    lags = sorted(record.sent - record.due for record in due)
    lag = percentile(lags, 99) if lags else None
    return Generator(cpu_cores=cost.cores, cpu_per_request=cost.cores / rate if rate else 0.0, lag=lag)


def _failures(failed: Mapping[str, int], requests: int, log: Log) -> list[str]:
    return [
        f"{count} of {requests} requests failed with {code}: {log.messages.get(code, '')}" for code, count in failed.items()
    ]


def _own_faults(cost: Cost, generator: Generator, latency: Distribution) -> list[str]:
    """Where it is the generator that was measured."""
    problems = []
    if cost.sending_share > BUSY:
        problems.append(f"{GENERATOR} was busy for {cost.sending_share:.0%} of the time: the server may do more than this")
    late = max(LATE_SECONDS, LATE_SHARE * latency.percentiles["99"])
    if generator.lag is not None and generator.lag > late:
        problems.append(f"{LATE} 1 % of the requests {1_000 * generator.lag:.1f} ms late or more")
    return problems
