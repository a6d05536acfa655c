"""Candidates that run in processes of their own (worker.py)."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from candidates import ctranslate2_backend
from candidates.candidate import Answer, Candidate, Decoding

WORKER = Path(__file__).parents[1] / "worker.py"
READY = "ready"
EXIT_SECONDS = 20.0
REASON_CHARACTERS = 300
PEER, OWN, TORCH = "CTranslate2", "Triptych", "PyTorch"  # families
CPU_TYPES = {"float16": "fp32", "int8_float16": "int8"}  # in rehearsals on the CPU
ANY: Mapping[str, str] = {name: name for name in ("fp32", "int8", "int8-caches", "int8-shortlist", "fp16")}


class RemoteError(Exception):
    """Failure of a candidate to start or to run, with its last line of output."""


@dataclass(frozen=True)
class Spec:
    """Specification of a candidate that the worker opens."""

    kind: str
    name: str
    family: str
    precisions: Mapping[str, str]  # label in the table: the candidate's own precision
    beams: bool = True
    compiles: bool = False  # torch.compile


SPECS = {
    "ctranslate2": [Spec("ctranslate2", PEER, PEER, {**ANY, "fp16": "float16"})],
    "ctranslate2-int8": [Spec("ctranslate2", "CTranslate2 int8", PEER, {"fp16": "int8_float16"})],
    "triptych": [Spec("triptych", OWN, OWN, ANY)],
    "grpc": [Spec("grpc", "Triptych gRPC", OWN, ANY)],
    "pytorch": [
        Spec("eager", TORCH, TORCH, {"fp32": "fp32"}, beams=False),
        Spec("compiled", "PyTorch compiled", TORCH, {"fp16": "fp16"}, beams=False, compiles=True),
    ],
    "transformers": [Spec("transformers", "transformers", "transformers", {"fp16": "fp16"})],
}
FP32: Mapping[str, str] = {"fp32": "fp32"}
ANY_OF_TEXT = {**ANY, "int4": "int4", "int4-int8-caches": "int4-int8-caches"}
GENERATORS = {  # of text, see candidates/generators.py
    "triptych": [Spec("triptych-generator", OWN, OWN, ANY_OF_TEXT)],
    "grpc": [Spec("grpc-generator", "Triptych gRPC", OWN, ANY_OF_TEXT)],
    "llama.cpp": [Spec("llama-cpp-generator", "llama.cpp", "llama.cpp", ANY_OF_TEXT)],
    "ctranslate2": [Spec("ctranslate2-generator", PEER, PEER, ANY)],
    "genai": [Spec("genai-generator", "onnxruntime-genai", "onnxruntime-genai", FP32)],
    "transformers": [Spec("transformers-generator", "transformers", "transformers", FP32)],
}


@dataclass(frozen=True)
class Setup:
    """Inputs of all candidates."""

    checkpoint: Path
    repository: Path
    model: str
    converted: Path  # folder of the model for CTranslate2; the first worker writes it
    work: Path
    device: str
    cpus: int
    slots: int  # of Triptych; 0: its default
    compiles: bool = False  # torch.compile
    serve_options: Sequence[str] = ()


class RemoteCandidate(Candidate):
    """Candidate in a process of its own, started by the constructor.

    Args:
        spec: Kind and name.
        precision: The candidate's own name of it.
        setup: Inputs.
        variables: Further environment variables.

    Raises:
        RemoteError: The process ended before it was ready.
    """

    def __init__(self, spec: Spec, precision: str, setup: Setup, variables: Mapping[str, str]) -> None:
        self.name, self.family, self.searches_beams = spec.name, spec.family, spec.beams
        setup.work.mkdir(parents=True, exist_ok=True)
        stem = "".join(letter if letter.isalnum() else "_" for letter in f"{spec.name} {precision}")
        file, self._log = setup.work / f"{stem}.json", setup.work / f"{stem}.log"
        content = {**asdict(setup), "kind": spec.kind, "precision": precision}
        file.write_text(json.dumps(content, default=str), encoding="utf-8")
        with self._log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(WORKER), str(file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **variables},
            )
        self.settings = self._read(READY)["settings"]

    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        found = self._call("translate", [texts], decoding)
        self.settings = found["settings"]
        return [Answer(**answer) for answer in found["answers"]]

    def tune(self, calls: Sequence[Sequence[str]], decoding: Decoding) -> None:
        self.settings = self._call("tune", calls, decoding)["settings"]

    def seconds(self, calls: Sequence[Sequence[str]], decoding: Decoding) -> float:
        return float(self._call("seconds", calls, decoding)["seconds"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _call(self, method: str, calls: Sequence[Sequence[str]], decoding: Decoding) -> dict[str, Any]:
        assert self._process.stdin is not None
        request = {"method": method, "calls": [list(call) for call in calls], "decoding": asdict(decoding)}
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # _read reports the reason
        return self._read(method)

    def _read(self, method: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code, log = self._process.wait(), self._log.read_text(encoding="utf-8", errors="replace")
            last = next((text.strip() for text in reversed(log.splitlines()) if text.strip()), "no output")
            raise RemoteError(f"ended with {code} ({method}): {last[:REASON_CHARACTERS]}")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise RemoteError(found["error"][:REASON_CHARACTERS])
        return found


def open_candidates(
    setup: Setup,
    names: Sequence[str],
    precision: str,
    refused: dict[str, str],
    specs: Mapping[str, Sequence[Spec]] = SPECS,
) -> Iterator[RemoteCandidate]:
    """Open the candidates of `names` that have the precision; `refused` receives the reasons of those that fail."""
    for spec in (spec for name in names for spec in specs[name] if precision in spec.precisions):
        own = spec.precisions[precision]
        if setup.device == "cpu":
            own = CPU_TYPES.get(own, own)
        variables, remark = {}, ""
        if spec.family == PEER and setup.device != "cpu":
            variables, words = ctranslate2_backend.cuda_environment(setup.work)
            remark = f" ({words})"
        try:
            yield RemoteCandidate(spec, own, replace(setup, compiles=setup.compiles and spec.compiles), variables)
        except RemoteError as error:
            refused[spec.name] = f"{error}{remark}"


def choose_backend(setup: Setup, precisions: Sequence[str], texts: Sequence[str], limit: int) -> str:
    """Set the environment variable with which CTranslate2 is fastest here; return it, or an empty string for none."""

    def seconds(assignment: str, precision: str) -> float:
        variables = dict([assignment.split("=")]) if assignment else {}
        candidate = RemoteCandidate(SPECS["ctranslate2"][0], precision, setup, variables)
        try:
            calls = [texts[start : start + 32] for start in range(0, len(texts), 32)]
            return min(candidate.seconds(calls, Decoding(1, limit)) for _ in range(ctranslate2_backend.PASSES))
        finally:
            candidate.close()

    return ctranslate2_backend.choose(lambda name: [seconds(name, precision) for precision in precisions], RemoteError)
