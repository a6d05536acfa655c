"""A Dockerfile as data: its stages, and what each does."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "serving" / "deploy" / "Dockerfile"
IGNORE = ROOT / ".dockerignore"


@dataclass(frozen=True)
class Step:
    """One instruction: `COPY`, and what follows it."""

    name: str
    text: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)

    @property
    def exec_form(self) -> list[str]:
        """A command that no shell sees: `["triptych", "serve"]`."""
        words = json.loads(self.text)
        assert isinstance(words, list), f"{self.name} is not in exec form: {self.text}"
        return words


@dataclass
class Stage:
    """What stands between one FROM and the next."""

    name: str
    parent: str  # another stage or an image
    steps: list[Step] = field(default_factory=list)

    def last(self, name: str) -> Step | None:
        found = [step for step in self.steps if step.name == name]
        return found[-1] if found else None

    def copies(self) -> Iterator[tuple[str, list[str], str]]:
        """The stage that a COPY takes from, empty where it is the context; sources; target."""
        for step in self.steps:
            if step.name == "COPY":
                yield copy_of(step)


def copy_of(step: Step) -> tuple[str, list[str], str]:
    """From, sources, target of a COPY."""
    words = step.words
    origin = words.pop(0).removeprefix("--from=") if words[0].startswith("--from=") else ""
    return origin, words[:-1], words[-1]


def stages(text: str) -> dict[str, Stage]:
    """By name, in their order."""
    found: dict[str, Stage] = {}
    arguments: dict[str, str] = {}
    for step in steps(text):
        if step.name == "ARG":
            name, _, value = step.text.partition("=")
            arguments[name] = value
        elif step.name == "FROM":
            parent, _, name = step.text.split()
            found[name] = stage = Stage(name, _filled(parent, arguments))
        else:
            stage.steps.append(step)
    return found


def steps(text: str) -> Iterator[Step]:
    """All instructions; comments are left out, continued lines are one."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        name, _, rest = line.partition(" ")
        command = re.search(r"CMD .*", rest) if name == "HEALTHCHECK" else None
        yield Step(name, command[0].removeprefix("CMD ") if command else rest.strip())


def lineage(found: dict[str, Stage], target: str) -> list[Stage]:
    """The stage and those that it is built upon, the first of them first."""
    stage = found[target]
    return [*(lineage(found, stage.parent) if stage.parent in found else []), stage]


def setting(found: dict[str, Stage], target: str, name: str) -> Step:
    """The instruction that counts for an image: the last one in its line."""
    given = [step for stage in lineage(found, target) if (step := stage.last(name)) is not None]
    assert given, f"{target} has no {name}"
    return given[-1]


def environment(found: dict[str, Stage], target: str, base: dict[str, str]) -> dict[str, str]:
    """What the processes of an image find in theirs."""
    values = dict(base)
    for stage in lineage(found, target):
        for step in stage.steps:
            if step.name == "ENV":
                values |= {name: _filled(value, values) for name, _, value in (word.partition("=") for word in step.words)}
    return values


def _filled(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\$\{?(\w+)\}?", lambda match: values.get(match[1], ""), text)
