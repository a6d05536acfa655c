"""Comparison of a run's figures with the targets of the project."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BATCHES = {1: 2.0, 256: 1.5}  # times CTranslate2 float16, by batch
TORCH = {1: 5.0, 32: 3.0}  # times PyTorch compiled, where CTranslate2 cannot run
FLOOR = 0.4  # of the roofline with launches
SERVER = 2.0  # times the best thin CTranslate2 server
ENCODER = 0.6  # of the larger ceiling, bandwidth or fp16 products
SERVED = 0.9  # of in process
PEER, OWN, IN_PROCESS, TORCH_NAME = "CTranslate2", "Triptych", "Triptych in process", "PyTorch compiled"
Json = Mapping[str, Any]


@dataclass(frozen=True)
class Target:
    """Target and measured figure."""

    what: str
    wanted: float
    found: float | None  # None: it was not measured

    @property
    def verdict(self) -> str:
        """Verdict in one word."""
        if self.found is None:
            return "not measured"
        return "holds" if self.found >= self.wanted else "FAILS"


def targets(results: Mapping[str, Json]) -> Iterator[Target]:
    """Yield all targets.

    Args:
        results: Contents of the stages' JSON files, by stage.
    """
    yield from _offline(results)
    yield Target("server: highest rate, times CTranslate2's", SERVER, _server(results.get("server", {})))
    closed: Mapping[str, float] = results.get("server", {}).get("closed loop", {})
    yield Target(
        "server: closed loop, of in process", SERVED, closed[OWN] / closed[IN_PROCESS] if IN_PROCESS in closed else None
    )
    for name in ("bert", "vit"):
        rows = {row["candidate"]: row for row in results.get(name, {}).get("results", [])}
        own = rows.get(IN_PROCESS)
        served = max((row["per_second"] for candidate, row in rows.items() if "gRPC" in candidate), default=0.0)
        yield Target(f"{name}: in process, of the ceiling", ENCODER, own["share"] if own else None)
        yield Target(f"{name}: gRPC, of in process", SERVED, served / own["per_second"] if own else None)
    if "quality" in results:
        yield from _quality(results["quality"])


def read_results(folder: Path) -> dict[str, Json]:
    """Read the JSON files of all stages, by stage."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def _offline(results: Mapping[str, Json]) -> Iterator[Target]:
    speeds = _speeds(results.get("offline", {}))
    compiled = _speeds(results.get("offline-torch", {}))
    for batch, wanted in BATCHES.items():
        yield Target(f"batch {batch}: tokens/s, times CTranslate2 float16", wanted, _ratio(speeds, batch, PEER))
    for batch, wanted in TORCH.items():
        yield Target(f"batch {batch}: tokens/s, times PyTorch compiled", wanted, _ratio(compiled, batch, TORCH_NAME))
    for row in results.get("offline", {}).get("results", []):
        if row["candidate"] == OWN and row["beam"] == 1:
            yield Target(f"batch {row['batch']}: of the roofline with launches", FLOOR, row["share_with_launches"])


def _speeds(content: Json) -> dict[tuple[int, str], float]:
    """Return tokens per second by batch and candidate, greedy."""
    rows = [row for row in content.get("results", []) if row["beam"] == 1]
    return {(row["batch"], row["candidate"]): row["tokens_per_second"] for row in rows}


def _ratio(speeds: Mapping[tuple[int, str], float], batch: int, peer: str) -> float | None:
    if (batch, OWN) not in speeds or (batch, peer) not in speeds:
        return None
    return speeds[batch, OWN] / speeds[batch, peer]


def _server(content: Json) -> float | None:
    rates: Mapping[str, float] = content.get("highest rates", {})
    peers = [rate for name, rate in rates.items() if name.startswith(PEER) and rate]
    return rates[OWN] / max(peers) if OWN in rates and peers else None


def _quality(content: Json) -> Iterator[Target]:
    for row in content.get("results", []):
        if row["candidate"] == OWN and row["same"]:
            yield Target(f"beam {row['beam']}: percent of tokens as in fp32, free running", 99.5, row["same"]["tokens"])
