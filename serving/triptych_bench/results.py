"""What a benchmark has measured. Seconds, bytes and requests a second throughout; None where it was not measured."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Of durations in seconds."""

    count: int
    mean: float
    minimum: float
    maximum: float
    percentiles: dict[str, float]  # "50", "90", "95", "99", "99.9"
    curve: tuple[tuple[float, float], ...] = ()  # (fraction, seconds): at most 200 points, dense towards 1

    def percentile(self, name: str) -> float | None:
        """None where nothing was measured, which is not 0."""
        return self.percentiles.get(name) if self.count else None


@dataclass(frozen=True, kw_only=True)
class Part:
    """Mean seconds of what a request consists of. The server's parts are as the server says."""

    client_send: float | None = None
    network: float | None = None  # what is left of the round trip
    server_queue: float | None = None
    server_preprocess: float | None = None
    server_compute: float | None = None
    server_postprocess: float | None = None
    client_receive: float | None = None


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One second of a run."""

    start: float  # seconds since the run's
    completed: int
    failed: int
    p50: float | None
    p99: float | None
    steady: bool  # counts


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What the server's process used while it was measured."""

    source: str  # "process 1234", "http://localhost:8002/metrics"
    cpu_cores: float | None = None  # CPU seconds a second
    memory_bytes: int | None = None  # resident, largest


@dataclass(frozen=True, kw_only=True)
class Generator:
    """What the load generator itself took: where that is much, a run says little of the server."""

    cpu_cores: float  # CPU seconds a second, of all its threads
    cpu_per_request: float  # seconds
    lag: float | None = None  # 99th percentile of how late requests were sent, of open loops


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What the server itself counted while it was measured, from the first request to the last."""

    source: str  # "ModelStatistics", "http://localhost:8002/metrics"
    requests: int  # that did not fail; what it had from other clients too
    expected: int  # that this client saw come back meanwhile
    mean_seconds: float | None = None  # from arrival to answer
    expected_seconds: float | None = None  # mean of this client's, from the moment of sending
    cached: int | None = None  # of the requests, those whose answer was there already


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Of what came back, where references were given."""

    metric: str  # "BLEU", "accuracy"
    value: float
    signature: str = ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One load that was put on a server, in its steady state."""

    name: str  # "concurrency 8", "120 requests/s"
    scenario: str  # "single-stream", "multi-stream", "server", "offline", "closed-loop"
    concurrency: int | None  # requests at once, of closed loops
    offered_rate: float | None  # requests a second, of open loops
    inputs_per_request: int
    seconds: float  # that count
    steady: bool  # it settled within its limits before it was measured
    completed: int  # requests
    failed: dict[str, int]  # by gRPC status
    throughput: float  # inputs a second
    request_rate: float  # completed requests a second
    goodput: float | None  # requests a second within the latency limit
    latency_limit: float | None
    latency: Distribution  # from the scheduled arrival
    late: int | None = None  # of the completed, beyond the latency limit
    service_time: Distribution | None = None  # from the moment of sending, where that is another
    first_token: Distribution | None = None
    inter_token: Distribution | None = None
    output_tokens: float | None = None  # a second
    parts: Part = field(default_factory=Part)
    resources: Resources | None = None
    generator: Generator | None = None
    counted: Counted | None = None
    quality: Quality | None = None
    moments: tuple[Moment, ...] = ()
    valid: bool = True  # meets what its scenario asks for
    problem: str = ""  # why not


@dataclass(frozen=True, kw_only=True)
class Report:
    """A benchmark: its runs, and what a reader must know to believe them."""

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
    headline: dict[str, float] = field(default_factory=dict)  # the scenario's own metric: "p90_seconds", "max_rate", ...
    notes: tuple[str, ...] = ()  # what went wrong beside the runs, a line each
