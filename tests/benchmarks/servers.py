"""The servers of a scenario, each in a process of its own."""

from collections.abc import Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import cores
from candidate import Decoding
from ct2_peer import splits
from process import ServerProcess, TimerProcess, serve_arguments

HERE = Path(__file__).parent
OWN, STATIC, PEER = "Triptych", "Triptych static", "CTranslate2"


@dataclass(frozen=True)
class Scenario:
    """What is served, and how."""

    repository: Path
    model: str
    converted: Path  # CTranslate2's folder
    precision: str
    decoding: Decoding
    cpus: Set[int]  # of every server
    max_batch: int  # of the thin servers
    wait_ms: float
    slots: int | None  # of a worker of Triptych
    serve_options: Sequence[str]


@contextmanager
def running(scenario: Scenario, names: Sequence[str]) -> Iterator[dict[str, str]]:
    """Addresses by name, of those whose name begins with one of `names`."""
    with ExitStack() as stack:
        addresses = {}
        for name, arguments in _commands(scenario).items():
            if name in names or (name.startswith(PEER) and PEER in names):
                with cores.held(scenario.cpus):
                    addresses[name] = stack.enter_context(ServerProcess(arguments)).address
        yield addresses


def in_process(scenario: Scenario, texts: Path) -> TimerProcess:
    """Triptych without a server, on the same CPUs."""
    arguments = [str(HERE / "in_process.py"), str(scenario.repository), str(texts), "--model", scenario.model]
    with cores.held(scenario.cpus):
        return TimerProcess([*arguments, *_common(scenario), *_slots(scenario)])


def _commands(scenario: Scenario) -> dict[str, list[str]]:
    """Arguments of the Python interpreter by name."""
    thin, cpus = str(HERE / "thin_server.py"), len(scenario.cpus)
    batching = ["--max-batch", str(scenario.max_batch), "--wait-ms", str(scenario.wait_ms)]
    more = [*_slots(scenario), *scenario.serve_options]
    commands = {OWN: serve_arguments(str(scenario.repository), scenario.model, scenario.precision, more)}
    static = [thin, "static", str(scenario.repository), "--model", scenario.model, "--workers", str(cpus)]
    commands[STATIC] = [*static, *_common(scenario), *batching]
    for split in splits(cpus):
        shape = ["--workers", str(split.workers), "--threads", str(split.threads)]
        commands[f"{PEER} {split}"] = [thin, "ctranslate2", str(scenario.converted), *shape, *_common(scenario), *batching]
    return commands


def _common(scenario: Scenario) -> list[str]:
    decoding = scenario.decoding
    limits = ["--beam", str(decoding.beam), "--limit", str(decoding.limit), *(["--exact"] if decoding.exact else [])]
    return ["--precision", scenario.precision, *limits]


def _slots(scenario: Scenario) -> list[str]:
    return ["--slots", str(scenario.slots)] if scenario.slots else []
