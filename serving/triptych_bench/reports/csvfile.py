"""Reports as CSV with the columns of perf_analyzer's `-f`, for programs that read its files.

As there, latencies are whole microseconds, rows are in ascending order of throughput, and `Request Rate` replaces `Concurrency`
if the loads are rates. Values that were not measured are empty, and further columns follow.
"""

import csv
import io
from collections.abc import Callable

from triptych_bench.results import Report, Run, percentile_of

CsvValue = str | int | float | None
Column = tuple[str, Callable[[Run], CsvValue]]


def dumps(report: Report) -> str:
    """Return the file's text, with "\n" at the ends of lines."""
    # The first column is the kind of the loads.
    rates = any(run.concurrency is None and run.offered_rate is not None for run in report.runs)
    load: Column = ("Request Rate", lambda run: run.offered_rate) if rates else ("Concurrency", lambda run: run.concurrency)
    columns = (load, *PERF_ANALYZER, *FURTHER)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(name for name, _ in columns)
    for run in sorted(report.runs, key=lambda run: run.throughput):
        writer.writerow(_cell(value(run)) for _, value in columns)
    return text.getvalue()


def _micros(seconds: float | None) -> int | None:
    # perf_analyzer truncates.
    return None if seconds is None else int(seconds * 1_000_000 + 1e-6)


def _cell(value: CsvValue) -> str | int:
    """Format floats with six digits, as C++ streams do."""
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else round(value)
    return "" if value is None else value


PERF_ANALYZER: tuple[Column, ...] = (
    ("Inferences/Second", lambda run: run.throughput),
    ("Client Send", lambda run: _micros(run.parts.client_send)),
    ("Network+Server Send/Recv", lambda run: _micros(run.parts.network)),
    ("Server Queue", lambda run: _micros(run.parts.server_queue)),
    ("Server Compute Input", lambda run: _micros(run.parts.server_preprocess)),
    ("Server Compute Infer", lambda run: _micros(run.parts.server_compute)),
    ("Server Compute Output", lambda run: _micros(run.parts.server_postprocess)),
    ("Client Recv", lambda run: _micros(run.parts.client_receive)),
    ("p50 latency", lambda run: _micros(percentile_of(run.latency, "50"))),
    ("p90 latency", lambda run: _micros(percentile_of(run.latency, "90"))),
    ("p95 latency", lambda run: _micros(percentile_of(run.latency, "95"))),
    ("p99 latency", lambda run: _micros(percentile_of(run.latency, "99"))),
)
FURTHER: tuple[Column, ...] = (
    ("p99.9 latency", lambda run: _micros(percentile_of(run.latency, "99.9"))),
    ("Avg latency", lambda run: _micros(run.latency.mean) if run.latency.count else None),
    ("Max latency", lambda run: _micros(run.latency.maximum) if run.latency.count else None),
    ("Load", lambda run: run.name),
    ("Scenario", lambda run: run.scenario),
    ("Inputs/Request", lambda run: run.inputs_per_request),
    ("Requests/Second", lambda run: run.request_rate),
    ("Goodput Requests/Second", lambda run: run.goodput),
    ("Completed Requests", lambda run: run.completed),
    ("Failed Requests", lambda run: run.failures),
    ("Measured Seconds", lambda run: run.seconds),
    ("p50 time to first token", lambda run: _micros(percentile_of(run.first_token, "50"))),
    ("p99 time to first token", lambda run: _micros(percentile_of(run.first_token, "99"))),
    ("p50 inter token latency", lambda run: _micros(percentile_of(run.inter_token, "50"))),
    ("p99 inter token latency", lambda run: _micros(percentile_of(run.inter_token, "99"))),
    ("Output Tokens/Second", lambda run: run.output_tokens),
    ("Server CPU Cores", lambda run: run.resources.cpu_cores if run.resources else None),
    ("Server Memory Bytes", lambda run: run.resources.memory_bytes if run.resources else None),
    ("Client CPU Cores", lambda run: run.generator.cpu_cores if run.generator else None),
    ("Server Counted Requests", lambda run: run.counted.requests if run.counted else None),
    ("Quality Metric", lambda run: run.quality.metric if run.quality else None),
    ("Quality", lambda run: run.quality.value if run.quality else None),
    ("Valid", lambda run: str(run.trusted).lower()),
    ("Problem", lambda run: run.problem),
)
