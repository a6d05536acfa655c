"""One candidate in a process of its own, which gpu_remote.py asks: python gpu_worker.py SPEC.JSON

What cannot be loaded, or breaks, takes nobody with it; times are taken in here. Requests and answers are lines of JSON on
standard input and output; what libraries print goes to standard error.
"""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from candidate import Candidate, Decoding
from ct2_peer import Ct2Peer, Split
from triptych_peer import ServedPeer, TriptychPeer, find_model

READY = "ready"


def open_candidate(spec: dict[str, Any]) -> Candidate:
    """What a specification names; see gpu_candidates.py."""
    device, precision = spec["device"], spec["precision"]
    match spec["kind"]:
        case "triptych":
            entry = find_model(Path(spec["repository"]), spec["model"])
            return TriptychPeer(entry, precision, spec["slots"], device=device)
        case "grpc":
            options = ["--device", device, *(["--slots", str(spec["slots"])] if spec["slots"] else [])]
            return ServedPeer(Path(spec["repository"]), spec["model"], precision, options)
        case "ctranslate2":
            return Ct2Peer(Path(spec["converted"]), precision, [Split(1, 1)], device)
        case "pytorch":
            from gpu_torch import CompiledTorchPeer

            from triptych_training.checkpoints.translation import load_checkpoint

            return CompiledTorchPeer(load_checkpoint(Path(spec["checkpoint"])), device, spec["compiles"])
        case "transformers":
            from gpu_huggingface import HuggingFacePeer

            from triptych_training.checkpoints.translation import load_checkpoint

            return HuggingFacePeer(load_checkpoint(Path(spec["checkpoint"])), device)
    raise ValueError(f"{spec['kind']} is unknown")


def answer(candidate: Candidate, request: dict[str, Any]) -> dict[str, Any]:
    """To one line."""
    calls, decoding = request["calls"], Decoding(**request["decoding"])
    match request["ask"]:
        case "translate":
            answers = [asdict(answer) for call in calls for answer in candidate.translate(call, decoding)]
            return {"answers": answers, "settings": candidate.settings}
        case "tune":
            candidate.tune(calls, decoding)
            return {"settings": candidate.settings}
        case "seconds":
            return {"seconds": candidate.seconds(calls, decoding)}
    raise ValueError(f"{request['ask']} is unknown")


def serve(candidate: Candidate, requests: TextIO, answers: TextIO) -> None:
    """Until there are no more requests."""
    _say(answers, {READY: True, "settings": candidate.settings})
    for line in requests:
        try:
            _say(answers, answer(candidate, json.loads(line)))
        except Exception as error:  # whoever asked shall hear of it
            _say(answers, {"error": f"{type(error).__name__}: {error}"})


def _say(answers: TextIO, content: dict[str, Any]) -> None:
    answers.write(json.dumps(content) + "\n")
    answers.flush()


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    candidate = open_candidate(spec)
    try:
        serve(candidate, sys.stdin, answers)
    finally:
        candidate.close()


if __name__ == "__main__":
    main()
