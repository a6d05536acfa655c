"""Runner of stages within a time budget, which continues where an earlier call stopped."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .stages import ROOT, Stage

DONE, FAILED, STOPPED, POSTPONED, BLOCKED = "done", "failed", "stopped", "postponed", "blocked"
STATE, LOGS = "state.json", "logs"
GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL
RESERVE_SECONDS = 5.0  # of the budget, for the table and the files
NOTE_CHARACTERS = 110


@dataclass(frozen=True)
class Outcome:
    """Result of a stage."""

    status: str
    seconds: float
    note: str  # one line


class Runner:
    """Stages of one call of the kit.

    Args:
        work: Folder for state, logs and results.
        budget_seconds: Time of the call.
        variables: Environment variables of every command.
        say: Prints a line.
    """

    def __init__(self, work: Path, budget_seconds: float, variables: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._work, self._variables, self._say = work, variables, say
        self._end = time.monotonic() + budget_seconds - RESERVE_SECONDS
        for name in (LOGS, "results"):
            (work / name).mkdir(parents=True, exist_ok=True)
        self.outcomes = read_state(work)

    def run(self, stage: Stage, again: bool = False) -> None:
        """Run a stage, unless it is done; with `again` even then."""
        if not again and stage.name in self.outcomes and self.outcomes[stage.name].status == DONE:
            self._say(f"== {stage.name}: done before")
            return
        self._say(f"== {stage.name}: {stage.about}")
        outcome = self.outcomes[stage.name] = self._attempt(stage)
        self._say(f"   {outcome.status} after {outcome.seconds:.0f} s{': ' if outcome.note else ''}{outcome.note}")
        content = {name: asdict(one) for name, one in self.outcomes.items()}
        (self._work / STATE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    def _attempt(self, stage: Stage) -> Outcome:
        missing = [name for name in stage.needs if name not in self.outcomes or self.outcomes[name].status != DONE]
        if missing:
            return Outcome(BLOCKED, 0, f"needs {', '.join(missing)}")
        if (left := self._end - time.monotonic()) < stage.least_seconds:
            return Outcome(POSTPONED, 0, f"{left:.0f} s are left, it takes {stage.least_seconds:.0f} or more")
        for folder in stage.fresh:
            shutil.rmtree(folder, ignore_errors=True)
        started = time.monotonic()
        end = min(self._end, started + stage.limit_seconds)
        log = self._work / LOGS / f"{stage.name}.log"
        with log.open("w", encoding="utf-8") as file:
            for command in stage.commands:
                code = self._command(command, stage, end, file.fileno())
                if code is None:
                    return Outcome(STOPPED, time.monotonic() - started, f"out of time: {_last_line(log)}")
                if code:
                    return Outcome(FAILED, time.monotonic() - started, f"exit code {code}: {_last_line(log)}")
        return Outcome(DONE, time.monotonic() - started, "")

    def _command(self, command: Sequence[str], stage: Stage, end: float, log: int) -> int | None:
        """Run a command and its children; return the exit code, or None after its time limit."""
        environment = {**os.environ, **self._variables, **stage.variables}
        process = subprocess.Popen(
            list(command), cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end_group(process)


def read_state(work: Path) -> dict[str, Outcome]:
    """Read the outcomes of earlier calls."""
    file = work / STATE
    if not file.exists():
        return {}
    return {name: Outcome(**members) for name, members in json.loads(file.read_text(encoding="utf-8")).items()}


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """End the process and its children, after a grace period."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    return next((line[:NOTE_CHARACTERS] for line in reversed(lines) if line), "no output")
