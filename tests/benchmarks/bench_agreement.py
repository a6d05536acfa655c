"""Whether `triptych bench` measures what a plain script measures: python tests/benchmarks/bench_agreement.py

One server; bench and plain.py take turns on it, so that what else the machine does falls on both. Of every pair of turns the
ratio is taken, and the median of the rounds printed; beside it stand the ratios of what the server itself counted to what bench
saw. Where there are several CPUs the server has one, and the clients have the others: a client that shares them with the server
slows it down by what it costs itself, which is not the same for both.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import click
from process import ServerProcess

TEXTS = Path(str(files("triptych_bench.inputs") / "samples" / "sentences.txt"))
PLAIN = Path(__file__).with_name("plain.py")
METRICS = ("rate", "mean", "p50", "p90", "p99")
SERVE = ("-m", "triptych_cli", "serve", "--host", "127.0.0.1", "--port", "0", "--metrics-port")


class Place(NamedTuple):
    """Of the server."""

    address: str
    metrics: str


@click.command()
@click.option("--models", type=click.Path(exists=True), default=None, help="[default: the embedded models]")
@click.option("--model", default="en-de")
@click.option("--concurrency", default="1,4")
@click.option("--seconds", type=float, default=10.0, help="Of a turn.")
@click.option("--rounds", type=int, default=7)
@click.option("--tolerance", type=float, default=0.05)
def main(models: str | None, model: str, concurrency: str, seconds: float, rounds: int, tolerance: float) -> None:
    worst = 0.0
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[:1])  # the server's
    with ServerProcess([*SERVE, str(port), "--model", model, *(("--models", models) if models else ())]) as server:
        os.sched_setaffinity(0, cpus[1:] or cpus)
        place = Place(server.address, f"http://127.0.0.1:{port}/metrics")
        for callers in map(int, concurrency.split(",")):
            turns = [_turns(place, callers, seconds, number) for number in range(rounds)]
            worst = max(worst, *_print(callers, turns))
    click.echo(f"largest difference {worst:.1%}, allowed {tolerance:.0%}")
    sys.exit(worst > tolerance)


def _turns(place: Place, callers: int, seconds: float, number: int) -> dict[str, float]:
    """The ratio of each metric, bench's to the other's; who begins alternates."""
    order = (_bench, _plain) if number % 2 else (_plain, _bench)
    found = {one: one(place, callers, seconds) for one in order}
    bench, plain = found[_bench], found[_plain]
    ratios = {metric: bench[metric] / plain[metric] for metric in METRICS}
    ratios["callers who wait"] = bench["rate"] * bench["mean"] / callers  # Little's law: 1 but for what the generator takes
    return {**ratios, "counted requests": bench["counted requests"], "counted mean": bench["counted mean"]}


def _bench(place: Place, callers: int, seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        flags = ("--measure-secs", seconds / 3, "--max-windows", 3, "--stability-percent", 100, "--warm-up-secs", 2)
        command = ["-m", "triptych_cli", "bench", "translate", "--server", place.address, "--concurrency", callers, *flags]
        _run([*command, "--metrics-url", place.metrics, "--input", TEXTS, "--quiet", "--json", file])
        run = json.loads(file.read_text(encoding="utf-8"))["runs"][0]
    latency, counted = run["latency"], run["counted"]
    percents = {f"p{percent}": latency["percentiles"][percent] for percent in ("50", "90", "99")}
    return {
        "rate": run["request_rate"],
        "mean": latency["mean"],
        **percents,
        "counted requests": counted["requests"] / counted["expected"],
        "counted mean": counted["mean_seconds"] / counted["expected_seconds"],
    }


def _plain(place: Place, callers: int, seconds: float) -> dict[str, float]:
    found: dict[str, float] = json.loads(_run([PLAIN, place.address, TEXTS, "--concurrency", callers, "--seconds", seconds]))
    return found


def _run(arguments: list[Any]) -> str:
    """Its output; a run that bench itself does not trust ends with 1, and counts here all the same."""
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode > 1:
        raise RuntimeError(done.stderr)
    return done.stdout


def _print(callers: int, turns: list[Mapping[str, float]]) -> list[float]:
    """A line for each ratio; how far throughput and latency are off."""
    off = []
    for metric in turns[0]:
        ratios = [turn[metric] for turn in turns]
        median = statistics.median(ratios)
        click.echo(f"concurrency {callers}  {metric:<17} {median:.3f}  ({min(ratios):.3f} to {max(ratios):.3f})")
        if metric in ("rate", "mean", "p50"):
            off.append(abs(median - 1))
    return off


if __name__ == "__main__":
    main()
