"""The figures of a run, computed from its log."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from triptych_bench.load.log import Log
from triptych_bench.load.loops import SampleBatch
from triptych_bench.measure.distribution import distribution, percentile
from triptych_bench.measure.steady import Span
from triptych_bench.results import Distribution, Generator, Resources, Run, ServerCounts, TimeBreakdown, TimelineEntry
from triptych_bench.target import Outcome

STAGES = ("queue", "preprocess", "compute", "postprocess")
BUSY = 0.85  # share of one CPU: a busier event loop delays everything
LATE_SECONDS = 0.002  # tolerated p99 of the delay of sending
LATE_SHARE = 0.1  # or this share of the latency's p99
GENERATOR = "the load generator"  # part of the problem of every run that it limited
LATE = f"{GENERATOR} sent"  # start of such a problem


@dataclass(frozen=True, kw_only=True)
class LoadSpec:
    """Name, scenario and strength of one load."""

    name: str
    scenario: str
    concurrency: int | None = None
    rate: float | None = None


@dataclass(frozen=True)
class GeneratorCost:
    """CPU use of the load generator between two moments."""

    cores: float  # CPU seconds per second
    sending_share: float  # of one CPU: sending threads take turns, at 1 the generator can do no more


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The conditions and the resources of one run."""

    span: Span  # the measurement
    steady: bool
    cost: GeneratorCost
    resources: Resources | None = None
    counted: ServerCounts | None = None
    counters: Mapping[str, float] = field(default_factory=dict)  # differences of the server's counters
    problems: tuple[str, ...] = ()


def run_of(load: LoadSpec, log: Log, batches: Sequence[SampleBatch], seen: Observation, limit: float | None) -> Run:
    """Compute the figures: latencies of the requests that were due in the span, rates of the responses received in it."""
    is_open, span = load.rate is not None, seen.span
    due = [record for record in log.records if span.has(record.due if is_open else record.received)]
    received = [record for record in log.records if record.ok and span.has(record.received)]
    completed = [record for record in due if record.ok]
    failed = Counter(record.code for record in due if not record.ok)
    latency = distribution(record.latency for record in completed)
    ended = sum(span.has(record.received) for record in log.records)
    generator = _generator(seen.cost, ended / span.seconds, due if is_open else ())
    failures = [
        f"{count} of {len(due)} requests failed with {code}: {log.messages.get(code, '')}" for code, count in failed.items()
    ]
    problems = (*seen.problems, *failures, *_generator_problems(seen.cost, generator, latency))
    streamed = [record for record in completed if record.token_times]
    within = [record for record in received if limit is not None and record.latency <= limit]
    tokens = sum(record.tokens for record in received)
    return Run(
        name=load.name,
        scenario=load.scenario,
        concurrency=load.concurrency,
        offered_rate=load.rate,
        inputs_per_request=len(batches[0].samples),
        seconds=span.seconds,
        steady=seen.steady,
        completed=len(completed),
        failed=dict(failed),
        throughput=sum(len(batches[record.batch].samples) for record in received) / span.seconds,
        request_rate=len(received) / span.seconds,
        goodput=len(within) / span.seconds if limit is not None else None,
        latency_limit=limit,
        latency=latency,
        late=sum(record.latency > limit for record in completed) if limit is not None else None,
        service_time=_service_time(completed),
        first_token=distribution(record.token_times[0] - record.due for record in streamed) if streamed else None,
        inter_token=_inter_token([record for record in streamed if len(batches[record.batch].samples) == 1]),
        output_tokens=tokens / span.seconds if tokens else None,
        parts=time_breakdown(completed, seen.counters),
        resources=seen.resources,
        generator=generator,
        counted=seen.counted,
        moments=timeline(log, span),
        valid=not problems and bool(completed),
        problem="; ".join(problems) or ("" if completed else "no request succeeded"),
    )


def server_counts(source: str, counters: Mapping[str, float], log: Log) -> ServerCounts:
    """Compare the server's counters of a run with what this client saw."""
    completed = [record for record in log.records if record.ok]
    requests = round(counters.get("requests", 0.0))
    total = counters.get("total")
    return ServerCounts(
        source=source,
        requests=requests,
        expected=len(completed),
        mean_seconds=total / requests if requests and total is not None else None,
        expected_seconds=_mean(record.received - record.sent for record in completed),
        cached=round(counters["cached"]) if "cached" in counters else None,
    )


def timeline(log: Log, span: Span) -> tuple[TimelineEntry, ...]:
    """Summarize each second from the start of the run to the last response; steady seconds lie completely in `span`."""
    found: defaultdict[int, list[Outcome]] = defaultdict(list)
    for record in log.records:
        found[math.floor(record.received - log.started)].append(record)
    seconds = range(max(found, default=-1) + 1)
    return tuple(_timeline_entry(log.started, second, found[second], span) for second in seconds)


def _timeline_entry(started: float, second: int, records: Sequence[Outcome], span: Span) -> TimelineEntry:
    latencies = sorted(record.latency for record in records if record.ok)
    start = started + second
    return TimelineEntry(
        start=float(second),
        completed=len(latencies),
        failed=len(records) - len(latencies),
        p50=percentile(latencies, 50) if latencies else None,
        p99=percentile(latencies, 99) if latencies else None,
        steady=span.start <= start and start + 1 <= span.end,
    )


def time_breakdown(records: Sequence[Outcome], counters: Mapping[str, float] | None = None) -> TimeBreakdown:
    """Compute the mean time of each stage of a request.

    Args:
        records: Successful requests.
        counters: Differences of the server's counters, for servers that report no times in their responses.
    """
    if not records:
        return TimeBreakdown()
    server = {stage: _mean(getattr(record.server, stage, None) for record in records) for stage in STAGES}
    if all(value is None for value in server.values()) and counters and counters.get("requests"):
        server = {stage: counters[stage] / counters["requests"] if stage in counters else None for stage in STAGES}
    send = _mean(record.client_send for record in records)
    receive = fmean(record.client_receive for record in records)
    whole = fmean(record.received - record.sent for record in records)
    known = [value for value in server.values() if value is not None]
    return TimeBreakdown(
        client_send=send,
        network=max(0.0, whole - (send or 0.0) - receive - math.fsum(known)),
        client_receive=receive,
        **{f"server_{stage}": value for stage, value in server.items()},
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _service_time(records: Sequence[Outcome]) -> Distribution | None:
    """Return None if every request was sent at its scheduled moment."""
    if all(record.sent == record.due for record in records):
        return None
    return distribution(record.received - record.sent for record in records)


def _inter_token(records: Sequence[Outcome]) -> Distribution | None:
    """Summarize the time per token after the first, of requests with one input and more than one piece."""
    several = [record for record in records if record.tokens > 1 and len(record.token_times) > 1]
    values = [(record.token_times[-1] - record.token_times[0]) / (record.tokens - 1) for record in several]
    return distribution(values) if values else None


def _generator(cost: GeneratorCost, rate: float, due: Sequence[Outcome]) -> Generator:
    lags = sorted(record.sent - record.due for record in due)
    lag = percentile(lags, 99) if lags else None
    return Generator(cpu_cores=cost.cores, cpu_per_request=cost.cores / rate if rate else 0.0, lag=lag)


def _generator_problems(cost: GeneratorCost, generator: Generator, latency: Distribution) -> list[str]:
    """List the reasons why the run measured the load generator instead of the server."""
    problems = []
    if cost.sending_share > BUSY:
        problems.append(f"{GENERATOR} was busy for {cost.sending_share:.0%} of the time: the server may be faster")
    late = max(LATE_SECONDS, LATE_SHARE * latency.percentiles["99"])
    if generator.lag is not None and generator.lag > late:
        problems.append(f"{LATE} 1 % of the requests at least {1_000 * generator.lag:.1f} ms late")
    return problems
