"""Who is compared on a GPU, on one set of weights."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_cuda12 import environment
from gpu_remote import RemoteCandidate, RemoteError


@dataclass(frozen=True)
class Kind:
    """One of those that can be asked for."""

    kind: str  # of gpu_worker.py
    name: str
    family: str
    gpu: str  # precision on a GPU
    cpu: str  # in rehearsals
    beams: bool = True


KINDS = {
    "ctranslate2": Kind("ctranslate2", "CTranslate2", "CTranslate2", "float16", "fp32"),
    "ctranslate2-int8": Kind("ctranslate2", "CTranslate2 int8", "CTranslate2", "int8_float16", "int8"),
    "triptych": Kind("triptych", "Triptych", "Triptych", "fp16", "fp16"),
    "grpc": Kind("grpc", "Triptych gRPC", "Triptych", "fp16", "fp16"),
    "pytorch": Kind("pytorch", "PyTorch compiled", "PyTorch", "fp16", "fp32", beams=False),
    "transformers": Kind("transformers", "transformers", "transformers", "fp16", "fp32"),
}


@dataclass(frozen=True)
class Setup:
    """What all candidates are made from."""

    checkpoint: Path
    repository: Path
    model: str
    converted: Path  # CTranslate2's folder
    work: Path
    device: str
    slots: int  # of Triptych
    compiles: bool  # torch.compile
    precision: str = ""  # of Triptych, where it is to be another one

    def precision_of(self, kind: Kind) -> str:
        """What it computes in."""
        if self.precision and kind.family == "Triptych":
            return self.precision
        return kind.cpu if self.device == "cpu" else kind.gpu


def open_candidates(setup: Setup, names: Sequence[str], refused: dict[str, str]) -> Iterator[RemoteCandidate]:
    """Those of `names` that can be had; `refused` gets the reasons of the others by their names."""
    for kind in (KINDS[name] for name in names):
        variables, words = _variables(setup, kind)
        try:
            yield RemoteCandidate(kind.name, kind.family, kind.beams, _spec(setup, kind), setup.work, variables)
        except RemoteError as error:
            refused[kind.name] = f"{error}{words}"


def _spec(setup: Setup, kind: Kind) -> dict[str, Any]:
    return {
        "kind": kind.kind,
        "precision": setup.precision_of(kind),
        "device": setup.device,
        "checkpoint": str(setup.checkpoint),
        "repository": str(setup.repository),
        "model": setup.model,
        "converted": str(setup.converted),
        "slots": setup.slots,
        "compiles": setup.compiles,
    }


def _variables(setup: Setup, kind: Kind) -> tuple[Mapping[str, str], str]:
    if kind.family != "CTranslate2" or setup.device == "cpu":
        return {}, ""
    variables, words = environment(setup.work)
    return variables, f" ({words})"
