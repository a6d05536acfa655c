"""Measured limits of a device, for comparison with the other benchmarks.

    python tests/benchmarks/roofline.py [--device cuda] [--tiny] [--json FILE]

Measures copies within the device's memory (bytes read and written), a product of large random fp16 matrices, and the start of a
small kernel: alone, and as a node of a captured graph in which each node waits for the previous one. Every figure is a median.
On the CPU, for rehearsals, a captured graph is a loop; figures with --tiny are meaningless.

A floor is the larger of two times: bytes divided by the copy bandwidth, and operations divided by the rate of products; "with
launches" adds a node's time for each kernel that must follow another. Weights that fit into the chip's cache may be read faster
than copies suggest: a share above 1 without launches is then no error.
"""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import torch
from report.work import Work

ROUNDS = 7
GIBIBYTE = 1 << 30


@dataclass(frozen=True)
class Ceilings:
    """Limits of a device."""

    device: str
    copy_bytes: float  # a second, read and written
    upload_bytes: float  # a second, from page-locked host memory
    matmul_flops: float  # a second, fp16
    launch_seconds: float  # of a small kernel by itself, many in a row
    node_seconds: float  # of a small kernel in a captured graph
    replay_seconds: float  # of a captured graph with one small kernel, until the host knows that it is done

    def floor(self, work: Work) -> float:
        """Return the minimum seconds for bytes and operations."""
        return max(work.bytes / self.copy_bytes, work.flops / self.matmul_flops)

    def floor_with_launches(self, work: Work) -> float:
        """Return the floor plus the time to start each kernel."""
        return self.floor(work) + work.kernels * self.node_seconds


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurements."""

    copy: int  # bytes
    side: int  # of square matrices
    nodes: int  # of the long graph


LARGE, TINY = Sizes(2 * GIBIBYTE, 8192, 500), Sizes(1 << 20, 128, 20)


def measure(device: torch.device, sizes: Sizes = LARGE) -> Ceilings:
    """Measure all limits, in a few seconds."""
    return Ceilings(
        device=_name(device),
        copy_bytes=2 * sizes.copy / _copy_seconds(device, sizes.copy),
        upload_bytes=sizes.copy / _upload_seconds(device, sizes.copy),
        matmul_flops=2.0 * sizes.side**3 / _matmul_seconds(device, sizes.side),
        launch_seconds=_launch_seconds(device, sizes.nodes),
        node_seconds=_node_seconds(device, sizes.nodes),
        replay_seconds=median_seconds(_captured(device, 1), device),
    )


def median_seconds(run: Callable[[], object], device: torch.device) -> float:
    """Return the median seconds until the device is done, after a warm-up run."""
    times = []
    for _ in range(ROUNDS + 1):
        synchronize(device)
        started = time.perf_counter()
        run()
        synchronize(device)
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def synchronize(device: torch.device) -> None:
    """Wait for the device; the CPU is always done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _copy_seconds(device: torch.device, size: int) -> float:
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return median_seconds(lambda: target.copy_(source), device)


def _upload_seconds(device: torch.device, size: int) -> float:
    source = torch.ones(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
    target = torch.empty(size, dtype=torch.uint8, device=device)
    return median_seconds(lambda: target.copy_(source, non_blocking=True), device)


def _matmul_seconds(device: torch.device, side: int) -> float:
    left, right = (torch.randn(side, side, device=device).half() for _ in range(2))
    output = torch.empty_like(left)
    return median_seconds(lambda: torch.matmul(left, right, out=output), device)


def _launch_seconds(device: torch.device, count: int) -> float:
    value = torch.zeros(1, device=device)

    def run() -> None:
        for _ in range(count):
            value.add_(1)

    return median_seconds(run, device) / count


def _node_seconds(device: torch.device, count: int) -> float:
    """Return the seconds of each further node of a graph."""
    short, long = (median_seconds(_captured(device, nodes), device) for nodes in (count, 2 * count))
    return max(0.0, long - short) / count


def _captured(device: torch.device, nodes: int) -> Callable[[], object]:
    """Return a function that replays a graph of consecutive small kernels."""
    value = torch.zeros(1, device=device)

    def run() -> None:
        for _ in range(nodes):
            value.add_(1)

    if device.type != "cuda":
        return run
    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def describe(ceilings: Ceilings) -> str:
    """Return one line of text."""
    return (
        f"{ceilings.device}: copies {ceilings.copy_bytes / 1e9:,.0f} GB/s, uploads {ceilings.upload_bytes / 1e9:,.1f} GB/s, "
        f"fp16 products {ceilings.matmul_flops / 1e12:,.2f} TFLOP/s, a kernel {1e6 * ceilings.launch_seconds:,.2f} us alone, "
        f"{1e6 * ceilings.node_seconds:,.2f} us in a graph, a replay {1e6 * ceilings.replay_seconds:,.1f} us"
    )


@click.command()
@click.option("--device", default="cuda", show_default=True)
@click.option("--tiny", is_flag=True, help="To rehearse; the figures mean nothing.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), default=None)
def main(device: str, tiny: bool, json_file: Path | None) -> None:
    ceilings = measure(torch.device(device), TINY if tiny else LARGE)
    click.echo(describe(ceilings))
    if json_file:
        content = {"ceilings": asdict(ceilings)}
        json_file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
