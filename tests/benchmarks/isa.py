"""Which of CTranslate2's back ends and instruction sets is fastest here: each is tried in a process of its own.

It reads them from the environment once, when it is imported: conversion, too, has a process of its own.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import MutableMapping, Sequence
from pathlib import Path

import click
from candidate import Decoding
from ct2_peer import Ct2Peer, Split

CONVERTER = Path(__file__).with_name("peers.py")
VARIABLES = ("CT2_USE_MKL", "CT2_FORCE_CPU_ISA", "CT2_PACKED_GEMM")
TRIED = ("", "CT2_USE_MKL=0", "CT2_USE_MKL=1", "CT2_PACKED_GEMM=1", "CT2_FORCE_CPU_ISA=AVX2", "CT2_FORCE_CPU_ISA=AVX512")
BATCH, PASSES = 32, 5
MARGIN = 0.93  # less of a gain is noise: CTranslate2's own choice stands


def prepare(checkpoint: Path, folder: Path, precisions: Sequence[str], texts: Sequence[str], limit: int) -> str:
    """Convert a checkpoint into `folder`, then choose. Only afterwards may this process import ctranslate2."""
    assert "ctranslate2" not in sys.modules
    subprocess.run([sys.executable, str(CONVERTER), str(checkpoint), str(folder)], check=True)
    return choose(folder, precisions, texts, limit)


def choose(folder: Path, precisions: Sequence[str], texts: Sequence[str], limit: int) -> str:
    """The assignment, one of TRIED, with the least time over all precisions; it is made in this process's environment."""
    times = {name: _seconds(name, folder, precisions, texts, limit) for name in TRIED}
    best = min(times, key=lambda name: times[name])
    if times[best] > MARGIN * times[""]:
        best = ""
    set_variables(os.environ, best)
    return best


def set_variables(environment: MutableMapping[str, str], assignment: str) -> None:
    """Make `NAME=VALUE` the only one of VARIABLES that is set; empty unsets all."""
    for name in VARIABLES:
        environment.pop(name, None)
    if assignment:
        name, _, value = assignment.partition("=")
        environment[name] = value


def _seconds(assignment: str, folder: Path, precisions: Sequence[str], texts: Sequence[str], limit: int) -> float:
    """The geometric mean over the precisions; infinite where this processor cannot do it."""
    environment = dict(os.environ)
    set_variables(environment, assignment)
    times = []
    for precision in precisions:
        command = [sys.executable, __file__, str(folder), precision, str(limit)]
        done = subprocess.run(
            command, env=environment, input="\n".join(texts), capture_output=True, encoding="utf-8", check=False
        )
        times.append(float(done.stdout) if done.returncode == 0 else float("inf"))
    return statistics.geometric_mean(times) if max(times) < float("inf") else float("inf")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("precision")
@click.argument("limit", type=int)
def main(folder: Path, precision: str, limit: int) -> None:
    """Print the seconds that the lines of standard input take."""
    texts = sys.stdin.read().splitlines()
    peer = Ct2Peer(folder, precision, [Split(1, 1)])
    times = []
    for _ in range(PASSES):
        started = time.perf_counter()
        for start in range(0, len(texts), BATCH):
            peer.translate(texts[start : start + BATCH], Decoding(1, limit))
        times.append(time.perf_counter() - started)
    click.echo(min(times))


if __name__ == "__main__":
    main()
