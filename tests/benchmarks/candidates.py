"""The candidates of a precision, on one set of weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from candidate import Candidate
from concat_peer import ConcatPeer
from ct2_peer import Ct2Peer, splits
from torch_peer import TorchPeer
from triptych_peer import ServedPeer, TriptychPeer

from triptych_serving.repository.repository import VersionFolder
from triptych_training.checkpoints.translation import Checkpoint

NAMES = ("ctranslate2", "triptych", "grpc", "pytorch", "concat")
EXACT = ("ctranslate2", "triptych")  # whose fp32 answers the others are held against
PRECISIONS_OF = {"pytorch": ("fp32",), "concat": ("fp32", "int8")}  # the others have any


@dataclass(frozen=True)
class Setup:
    """What all candidates are made from."""

    checkpoint: Checkpoint
    repository: Path
    entry: VersionFolder
    converted: Path  # CTranslate2's folder
    scratch: Path
    cpus: int
    slots: int | None  # of an engine worker
    serve_options: Sequence[str]


def open_candidates(setup: Setup, precision: str, names: Sequence[str]) -> list[Candidate]:
    """Those of `names` that have the precision."""
    return [_open(setup, precision, name) for name in names if precision in PRECISIONS_OF.get(name, (precision,))]


def _open(setup: Setup, precision: str, name: str) -> Candidate:
    match name:
        case "ctranslate2":
            return Ct2Peer(setup.converted, precision, splits(setup.cpus))
        case "triptych":
            return TriptychPeer(setup.entry, precision, setup.slots)
        case "grpc":
            slots = ["--slots", str(setup.slots)] if setup.slots else []
            return ServedPeer(setup.repository, setup.entry.name, precision, [*slots, *setup.serve_options])
        case "pytorch":
            return TorchPeer(setup.checkpoint, setup.cpus)
        case _:
            return ConcatPeer(setup.checkpoint, setup.scratch / precision, precision, setup.cpus)
