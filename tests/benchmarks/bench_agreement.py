"""Comparison of `triptych bench` with a plain script: python tests/benchmarks/bench_agreement.py

`triptych bench` and plain.py take turns on one server, so that other work of the machine disturbs both equally. The table has
the median of the ratios of all rounds, and the ratios of the server's own counts to those of the benchmark. With several CPUs
the server has one and the clients have the others: a client that shares CPUs with the server slows it down by its own cost,
which differs between the two.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from triptych_bench.server.process import TriptychServer

TEXTS = Path(str(files("triptych_bench.inputs") / "samples" / "sentences.txt"))
PLAIN = Path(__file__).with_name("plain.py")
METRICS = ("rate", "mean", "p50", "p90", "p99")


@click.command()
@click.option("--models", type=click.Path(exists=True), default=None, help="[default: the embedded models]")
@click.option("--model", default="en-de")
@click.option("--concurrency", default="1,4")
@click.option("--seconds", type=float, default=10.0, help="Per turn.")
@click.option("--rounds", type=int, default=7)
@click.option("--tolerance", type=float, default=0.05)
def main(models: str | None, model: str, concurrency: str, seconds: float, rounds: int, tolerance: float) -> None:
    worst = 0.0
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[:1])  # of the server
    with TriptychServer(["--model", model, *(("--models", models) if models else ())]) as server:
        os.sched_setaffinity(0, cpus[1:] or cpus)
        for callers in map(int, concurrency.split(",")):
            turns = [_turns(server, callers, seconds, number) for number in range(rounds)]
            worst = max(worst, *_print(callers, turns))
    click.echo(f"largest difference {worst:.1%}, allowed {tolerance:.0%}")
    sys.exit(worst > tolerance)


def _turns(server: TriptychServer, callers: int, seconds: float, number: int) -> dict[str, float]:
    """Return the ratio of each metric, `triptych bench` to plain.py; the order alternates."""
    order = (_bench, _plain) if number % 2 else (_plain, _bench)
    found = {one: one(server, callers, seconds) for one in order}
    bench, plain = found[_bench], found[_plain]
    ratios = {metric: bench[metric] / plain[metric] for metric in METRICS}
    ratios["callers who wait"] = bench["rate"] * bench["mean"] / callers  # Little's law: 1 except for the cost of the generator
    return {**ratios, "counted requests": bench["counted requests"], "counted mean": bench["counted mean"]}


def _bench(server: TriptychServer, callers: int, seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        flags = ("--measure-secs", seconds / 3, "--max-windows", 3, "--stability-percent", 100, "--warm-up-secs", 2)
        command = ["-m", "triptych_cli", "bench", "translate", "--server", server.address, "--concurrency", callers, *flags]
        _run([*command, "--metrics-url", server.metrics_url, "--input", TEXTS, "--quiet", "--json", file])
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


def _plain(server: TriptychServer, callers: int, seconds: float) -> dict[str, float]:
    found: dict[str, float] = json.loads(_run([PLAIN, server.address, TEXTS, "--concurrency", callers, "--seconds", seconds]))
    return found


def _run(arguments: list[Any]) -> str:
    """Return the output; exit code 1, an unstable run of `triptych bench`, is accepted."""
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode > 1:
        raise RuntimeError(done.stderr)
    return done.stdout


def _print(callers: int, turns: list[Mapping[str, float]]) -> list[float]:
    """Print a line per ratio; return the deviations of throughput and latency from 1."""
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
