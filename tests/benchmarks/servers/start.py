"""Start of the servers of a benchmark, each in a process of its own."""

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click
from candidates.candidate import Decoding
from candidates.ctranslate2_model import splits
from candidates.remote import Setup

from servers import cpus
from triptych_bench.server.process import ServerProcess, TriptychServer
from triptych_bench.target import TargetError

SCRIPTS = Path(__file__).parents[1]
READY = re.compile(r"ready on (\S+)")
IN_PROCESS, OWN, STATIC, PEER, TORCH = "Triptych in process", "Triptych", "Triptych static", "CTranslate2", "PyTorch"
LANES = (1, 2)  # concurrent batches of CTranslate2 on a GPU


@dataclass(frozen=True)
class Scenario:
    """Models and options of the servers."""

    setup: Setup
    warm: Path | None  # JSON list of texts for the warm-up
    precision: str
    decoding: Decoding
    max_batch: int  # of the thin servers
    wait_ms: float


def script_server(script: str, *arguments: str) -> ServerProcess:
    """Return the server of a script of this folder, which prints `ready on HOST:PORT` on standard error."""
    return ServerProcess([sys.executable, str(SCRIPTS / script), *arguments], READY)


def start_servers(
    scenario: Scenario,
    names: Sequence[str],
    held: frozenset[int],
    stack: ExitStack,
    refused: dict[str, str],
    variables: Mapping[str, str],
) -> dict[str, str]:
    """Start servers on the CPUs `held` and return their addresses by name.

    Args:
        scenario: Models and options.
        names: Servers; CTranslate2 has one for each division of the CPUs, or number of batches on the GPU.
        held: CPUs.
        stack: Ends the servers.
        refused: Receives the reasons of servers that do not start.
        variables: Environment variables for CTranslate2.

    Raises:
        click.ClickException: No server has started.
    """
    addresses: dict[str, str] = {}
    for name, server in _servers(scenario, len(held)).items():
        family = PEER if name.startswith(PEER) else name
        if family not in names:
            continue
        try:
            with cpus.held(held, variables if family == PEER else {}):
                addresses[name] = stack.enter_context(server).address
        except TargetError as error:
            refused[name] = str(error)
    if not addresses:
        raise click.ClickException(f"no server has started: {refused}")
    return addresses


def _servers(scenario: Scenario, count: int) -> dict[str, ServerProcess]:
    """Return all servers by name, not started."""
    setup, decoding = scenario.setup, scenario.decoding
    gpu = setup.device != "cpu"
    device = ["--device", setup.device] if gpu else []
    slots = ["--slots", str(setup.slots)] if setup.slots else []
    repository, model = ["--models", str(setup.repository)], ["--model", setup.model]
    precision = ["--precision", scenario.precision]
    common = ["--beam", str(decoding.beam), "--limit", str(decoding.limit), *(["--exact"] if decoding.exact else []), *device]
    common += ["--max-batch", str(scenario.max_batch), "--wait-ms", str(scenario.wait_ms)]
    common += ["--warm", str(scenario.warm)] if scenario.warm else []

    def thin(kind: str, path: Path, *arguments: str) -> ServerProcess:
        return script_server("thin_server.py", kind, str(path), *arguments, *common)

    workers = ["--workers", "1" if gpu else str(count)]
    servers = {
        OWN: TriptychServer([*repository, *model, *precision, *device, *slots, *setup.serve_options]),
        STATIC: thin("static", setup.repository, *model, *precision, *workers),
        TORCH: thin("pytorch", setup.checkpoint),
    }
    if gpu or scenario.precision == "fp16":  # fp16 on the CPU is a rehearsal for the GPU
        peer = {str(lanes): ["--workers", str(lanes)] for lanes in LANES}
        precision = ["--precision", "float16" if gpu else "fp32"]
    else:
        peer = {str(split): ["--workers", str(split.workers), "--threads", str(split.threads)] for split in splits(count)}
    for shape, flags in peer.items():
        servers[f"{PEER} {shape}"] = thin("ctranslate2", setup.converted, *flags, *precision)
    return servers
