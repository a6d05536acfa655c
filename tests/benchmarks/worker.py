"""One candidate in a process of its own, for candidates/remote.py: python tests/benchmarks/worker.py SPEC.JSON

A candidate that cannot be loaded or breaks leaves the others alone; times are taken in this process. Requests and responses are
lines of JSON on standard input and output; output of libraries goes to standard error.
"""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from candidates.candidate import Candidate, Decoding
from candidates.remote import READY


def open_candidate(spec: dict[str, Any]) -> Candidate:
    """Open the candidate of a specification; each imports only its own libraries."""
    device, precision, slots = spec["device"], spec["precision"], spec["slots"]
    checkpoint, repository = Path(spec["checkpoint"]), Path(spec["repository"])
    match spec["kind"]:
        case "triptych":
            from candidates.triptych_model import TriptychModel, find_model

            return TriptychModel(find_model(repository, spec["model"]), precision, slots or None, device=device)
        case "grpc":
            from candidates.triptych_model import TriptychThroughGrpc

            options = ["--device", device, *(["--slots", str(slots)] if slots else []), *spec["serve_options"]]
            model = ["--models", str(repository), "--model", spec["model"], "--precision", precision]
            return TriptychThroughGrpc([*model, *options])
        case "ctranslate2":
            from candidates.ctranslate2_model import CTranslate2Model, Split, splits

            if not (folder := Path(spec["converted"])).exists():
                from candidates.ctranslate2_conversion import convert

                convert(_load(checkpoint), folder)
            return CTranslate2Model(folder, precision, splits(spec["cpus"]) if device == "cpu" else [Split(1, 1)], device)
        case "eager":
            from candidates.torch_eager import EagerTorch

            return EagerTorch(_load(checkpoint), spec["cpus"])
        case "compiled":
            from candidates.torch_compiled import CompiledTorch

            return CompiledTorch(_load(checkpoint), device, spec["compiles"])
        case "transformers":
            from candidates.huggingface import HuggingFaceModel

            return HuggingFaceModel(_load(checkpoint), device)
    raise ValueError(f"kind: {spec['kind']} is unknown")


def open_generator(spec: dict[str, Any]) -> Candidate:
    """Open a candidate that generates text."""
    from candidates import generators

    checkpoint, work = Path(spec["checkpoint"]), Path(spec["work"])
    repository, precision, cpus = Path(spec["repository"]), spec["precision"], spec["cpus"]
    match spec["kind"]:
        case "triptych-generator":
            return generators.TriptychGenerator(repository / spec["model"] / "1", precision)
        case "grpc-generator":
            return generators.TriptychGrpcGenerator(repository, precision)
        case "ctranslate2-generator":
            return generators.CTranslate2Generator(checkpoint, Path(spec["converted"]), precision, cpus)
        case "genai-generator":
            return generators.GenaiGenerator(checkpoint, work / "genai", cpus)
        case "llama-cpp-generator":
            from candidates.llama_cpp_model import LlamaCppGenerator

            return LlamaCppGenerator(checkpoint, work / "llama.cpp", precision, cpus)
        case "transformers-generator":
            return generators.TransformersGenerator(checkpoint, cpus)
    raise ValueError(f"kind: {spec['kind']} is unknown")


def _load(checkpoint: Path) -> Any:
    from triptych_training.checkpoints.translation import load_checkpoint  # imports PyTorch, which not every candidate needs

    return load_checkpoint(checkpoint)


def respond(candidate: Candidate, request: dict[str, Any]) -> dict[str, Any]:
    """Return the response to one request."""
    calls, decoding = request["calls"], Decoding(**request["decoding"])
    match request["method"]:
        case "translate":
            answers = [asdict(answer) for call in calls for answer in candidate.translate(call, decoding)]
            return {"answers": answers, "settings": candidate.settings}
        case "tune":
            candidate.tune(calls, decoding)
            return {"settings": candidate.settings}
        case "seconds":
            return {"seconds": candidate.seconds(calls, decoding)}
    raise ValueError(f"method: {request['method']} is unknown")


def _write(output: TextIO, content: dict[str, Any]) -> None:
    output.write(json.dumps(content) + "\n")
    output.flush()


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    candidate = open_generator(spec) if spec["kind"].endswith("-generator") else open_candidate(spec)
    try:
        _write(output, {READY: True, "settings": candidate.settings})
        for line in sys.stdin:
            try:
                _write(output, respond(candidate, json.loads(line)))
            except Exception as error:  # reported to the caller
                _write(output, {"error": f"{type(error).__name__}: {error}"})
    finally:
        candidate.close()


if __name__ == "__main__":
    main()
