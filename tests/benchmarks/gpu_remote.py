"""A candidate that lives in another process (gpu_worker.py)."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from candidate import Answer, Candidate, Decoding
from gpu_worker import READY

WORKER = Path(__file__).with_name("gpu_worker.py")
EXIT_SECONDS = 20.0
REASON_CHARACTERS = 300


class RemoteError(Exception):
    """A candidate cannot be had, or broke; says why in one line."""


class RemoteCandidate(Candidate):
    """Started when made.

    Args:
        name: of the candidate.
        family: likewise.
        beams: it searches beams.
        spec: what the worker opens.
        work: for its specification and its log.
        variables: of its environment, beside ours.

    Raises:
        RemoteError: it ended before it was ready.
    """

    def __init__(
        self, name: str, family: str, beams: bool, spec: Mapping[str, Any], work: Path, variables: Mapping[str, str]
    ) -> None:
        self.name, self.family, self.searches_beams = name, family, beams
        work.mkdir(parents=True, exist_ok=True)
        self._stem = "".join(letter if letter.isalnum() else "_" for letter in name)
        file, self._log = work / f"{self._stem}.json", work / f"{self._stem}.log"
        file.write_text(json.dumps(dict(spec)), encoding="utf-8")
        with self._log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(WORKER), str(file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **variables},
            )
        self.settings = self._answer(READY)["settings"]

    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        found = self._ask("translate", [texts], decoding)
        self.settings = found["settings"]
        return [Answer(**answer) for answer in found["answers"]]

    def tune(self, calls: Sequence[Sequence[str]], decoding: Decoding) -> None:
        self.settings = self._ask("tune", calls, decoding)["settings"]

    def seconds(self, calls: Sequence[Sequence[str]], decoding: Decoding) -> float:
        return float(self._ask("seconds", calls, decoding)["seconds"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, what: str, calls: Sequence[Sequence[str]], decoding: Decoding) -> dict[str, Any]:
        assert self._process.stdin is not None
        request = {"ask": what, "calls": [list(call) for call in calls], "decoding": asdict(decoding)}
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer's absence says why
        return self._answer(what)

    def _answer(self, what: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise RemoteError(f"ended with {code} ({what}): {self._last_words()}")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise RemoteError(found["error"][:REASON_CHARACTERS])
        return found

    def _last_words(self) -> str:
        lines = [line.strip() for line in self._log.read_text(encoding="utf-8", errors="replace").splitlines()]
        return next((line[:REASON_CHARACTERS] for line in reversed(lines) if line), "it said nothing")
