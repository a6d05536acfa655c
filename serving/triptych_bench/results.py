"""The results of a benchmark. Units are seconds, bytes and requests per second; None means not measured."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """A distribution of durations in seconds."""

    count: int
    mean: float
    minimum: float
    maximum: float
    percentiles: dict[str, float]  # "50", "90", "95", "99", "99.9"
    curve: tuple[tuple[float, float], ...] = ()  # (fraction, seconds): at most 200 points, dense towards 1


def percentile_of(distribution: Distribution | None, name: str) -> float | None:
    """Return a percentile, or None (not 0) without a distribution or for an empty one."""
    return distribution.percentiles.get(name) if distribution and distribution.count else None


@dataclass(frozen=True, kw_only=True)
class TimeBreakdown:
    """Mean seconds of the stages of a request; those of the server are its own."""

    client_send: float | None = None
    network: float | None = None  # the rest of the round trip
    server_queue: float | None = None
    server_preprocess: float | None = None
    server_compute: float | None = None
    server_postprocess: float | None = None
    client_receive: float | None = None


@dataclass(frozen=True, kw_only=True)
class TimelineEntry:
    """One second of a run."""

    start: float  # seconds since the start of the run
    completed: int
    failed: int
    p50: float | None
    p99: float | None
    steady: bool  # part of the measurement


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources that the server used during the measurement."""

    source: str  # "process 1234", "http://localhost:8002/metrics"
    cpu_cores: float | None = None  # CPU seconds per second
    memory_bytes: int | None = None  # largest resident set


@dataclass(frozen=True, kw_only=True)
class Generator:
    """Resources that the load generator used: if they are large, a run says little about the server."""

    cpu_cores: float  # CPU seconds per second, of all its threads
    cpu_per_request: float  # seconds
    lag: float | None = None  # 99th percentile of the delay of sending, of open loops


@dataclass(frozen=True, kw_only=True)
class ServerCounts:
    """The server's own counters during a run, from the first request to the last."""

    source: str  # "ModelStatistics", "http://localhost:8002/metrics"
    requests: int  # without failure, from all clients
    expected: int  # that this client saw succeed
    mean_seconds: float | None = None  # from arrival to response
    expected_seconds: float | None = None  # mean of this client, from sending
    cached: int | None = None  # requests that the server's cache answered


@dataclass(frozen=True, kw_only=True)
class Quality:
    """The quality of the outputs, where references were given."""

    metric: str  # "BLEU", "accuracy"
    value: float
    signature: str = ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """The measurement of one load on a server in its steady state."""

    name: str  # "concurrency 8", "120 requests/s"
    scenario: str  # "single-stream", "multi-stream", "server", "offline", "closed-loop"
    concurrency: int | None  # requests in flight, of closed loops
    offered_rate: float | None  # requests per second, of open loops
    inputs_per_request: int
    seconds: float  # of the measurement
    steady: bool  # the load settled within its limits before it was measured
    completed: int  # requests
    failed: dict[str, int]  # by gRPC status
    throughput: float  # inputs per second
    request_rate: float  # completed requests per second
    goodput: float | None  # requests per second within the latency limit
    latency_limit: float | None
    latency: Distribution  # from the scheduled arrival
    late: int | None = None  # completed requests beyond the latency limit
    service_time: Distribution | None = None  # from the moment of sending, if that differs
    first_token: Distribution | None = None
    inter_token: Distribution | None = None
    output_tokens: float | None = None  # per second
    parts: TimeBreakdown = field(default_factory=TimeBreakdown)
    resources: Resources | None = None
    generator: Generator | None = None
    counted: ServerCounts | None = None
    quality: Quality | None = None
    moments: tuple[TimelineEntry, ...] = ()
    valid: bool = True  # meets the requirements of its scenario
    problem: str = ""  # if not, the reason

    @property
    def failures(self) -> int:
        """Number of failed requests."""
        return sum(self.failed.values())

    @property
    def trusted(self) -> bool:
        """True if the run may be quoted: valid and steady."""
        return self.valid and self.steady


@dataclass(frozen=True, kw_only=True)
class Report:
    """A benchmark: its runs, and the conditions under which they were measured."""

    version: int = 1  # of this format
    tool: str = ""  # "triptych 0.1.0"
    started: str = ""  # ISO 8601, UTC
    command: str = ""
    task: str = ""
    scenario: str = ""
    target: dict[str, str] = field(default_factory=dict)  # address, protocol, model, model_version, precision, devices, ...
    inputs: dict[str, str] = field(default_factory=dict)  # source, count, sha256, mean characters
    machine: dict[str, str] = field(default_factory=dict)  # of the client: processor, CPUs, system, python
    settings: dict[str, str] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    headline: dict[str, float] = field(default_factory=dict)  # the scenario's main figures: "p90_seconds", "max_rate", ...
    notes: tuple[str, ...] = ()  # problems that belong to no run, one line each
