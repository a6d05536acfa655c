"""Root file systems in place of images: made by debootstrap, filled by a Dockerfile's steps, entered by bubblewrap.

It needs root, `debootstrap` and `bwrap`, and a network for apt and pip.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import click

from .dockerfile import IGNORE, ROOT, Stage, Step, copy_of, environment, setting

SUITE = "bookworm"  # what the official Python image stands on
MIRROR = "http://deb.debian.org/debian"
PATH = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


def make_base(folder: Path) -> None:
    """A stand-in for python:*-slim-bookworm: Debian's own Python 3.11, callable as `python`."""
    packages = "--include=python3,python3-pip,python3-venv,ca-certificates"
    _run(["debootstrap", "--variant=minbase", packages, SUITE, str(folder), MIRROR])
    (folder / "usr/bin/python").symlink_to("python3")
    for marker in (folder / "usr/lib").glob("python3*/EXTERNALLY-MANAGED"):  # the official image lets pip install
        marker.unlink()


@dataclass
class Builder:
    """Builds the stages of a Dockerfile, each in a folder of its own.

    Args:
        stages: of the Dockerfile.
        base: root of the image that they all begin with.
        work: where the roots lie.
    """

    stages: dict[str, Stage]
    base: Path
    work: Path
    built: dict[str, Path] = field(default_factory=dict)

    def build(self, name: str) -> Path:
        """The root of a stage; the stages that it needs are built first."""
        if name not in self.built:
            stage, root = self.stages[name], self.work / name
            parent = self.build(stage.parent) if stage.parent in self.stages else self.base
            for origin, _, _ in stage.copies():
                if origin:
                    self.build(origin)
            click.echo(f"== {name}")
            _run(["cp", "--archive", "--reflink=auto", str(parent), str(root)])
            self._apply(stage, root)
            self.built[name] = root
        return self.built[name]

    def _apply(self, stage: Stage, root: Path) -> None:
        folder = "/"
        for step in stage.steps:
            if step.name == "WORKDIR":
                folder = step.text
                _inside(root, folder).mkdir(parents=True, exist_ok=True)
            elif step.name == "COPY":
                self._copy(step, root, folder)
            elif step.name == "RUN":
                click.echo(f"-- {step.text}")
                enter(root, ["/bin/sh", "-c", step.text], folder, environment(self.stages, stage.name, PATH))

    def _copy(self, step: Step, root: Path, folder: str) -> None:
        origin, sources, target = copy_of(step)
        context = self.built[origin] if origin else ROOT
        for source in sources:
            if not origin:
                assert is_in_context(source), f"{source} is left out by .dockerignore"
            path = _inside(context, source)
            place = _inside(root, str(PurePosixPath(folder, target)))
            if path.is_dir():
                ignore = None if origin else shutil.ignore_patterns("__pycache__", "*.pyc")
                shutil.copytree(path, place, symlinks=True, dirs_exist_ok=True, ignore=ignore)
            else:
                shutil.copy2(path, place)


def is_in_context(source: str) -> bool:
    """Whether .dockerignore, which lists what it lets in, has a COPY's source."""
    lines = IGNORE.read_text(encoding="utf-8").splitlines()
    return Path(source).parts[0] in {line.removeprefix("!") for line in lines if line.startswith("!")}


def enter(root: Path, command: list[str], folder: str, variables: Mapping[str, str]) -> None:
    """Run a build step as root of a root; pip's settings of this machine count, as its mirrors do.

    Raises:
        CalledProcessError: it failed.
    """
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.lower().endswith("_proxy")}
    certificate = "/etc/ssl/certs/ca-certificates.crt"
    mounts = ["--bind", str(root), "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    machine = ["--ro-bind", "/etc/resolv.conf", "/etc/resolv.conf", "--ro-bind", certificate, certificate]
    _run(["bwrap", *mounts, *machine, *_settings({**variables, **pip}, folder), *command])


@dataclass(frozen=True)
class Container:
    """How processes of an image are run: as its user, with nothing to write to, no capabilities and no way to new ones.

    Args:
        stages: of the Dockerfile.
        target: the stage that is the image.
        root: where it was built.
        variables: beside those of the image.
        mounts: folder -> where it is seen, read-only.
    """

    stages: dict[str, Stage]
    target: str
    root: Path
    variables: Mapping[str, str]
    mounts: Mapping[Path, str] = field(default_factory=dict)

    def command(self, words: list[str], *options: str) -> list[str]:
        """A command line for this machine."""
        user, _, group = setting(self.stages, self.target, "USER").text.partition(":")
        mounts = [word for folder, place in self.mounts.items() for word in ("--ro-bind", str(folder), place)]
        fences = ["--unshare-user", "--uid", user, "--gid", group, "--unshare-pid", "--unshare-ipc", "--cap-drop", "ALL"]
        variables = {**environment(self.stages, self.target, PATH), **self.variables}
        folders = ["--ro-bind", str(self.root), "/", *mounts, "--proc", "/proc", "--dev", "/dev", "--remount-ro", "/"]
        return ["bwrap", *folders, *fences, "--die-with-parent", *options, *_settings(variables, "/"), *words]

    def run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command and take what it prints."""
        return subprocess.run(self.command(words), capture_output=True, text=True, check=False, timeout=120)

    def start(self, words: list[str], log: Path) -> "Process":
        """Start the process that a container would have as number 1."""
        read, write = os.pipe()
        with log.open("w") as output:
            command = self.command(words, "--as-pid-1", "--info-fd", str(write))
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, pass_fds=[write])
        os.close(write)
        with os.fdopen(read) as information:
            return Process(process, json.load(information)["child-pid"])


@dataclass(frozen=True)
class Process:
    """A process in a container, and its number outside."""

    fence: subprocess.Popen[bytes]
    pid: int


def _settings(variables: Mapping[str, str], folder: str) -> list[str]:
    return ["--clearenv", *(word for pair in variables.items() for word in ("--setenv", *pair)), "--chdir", folder]


def _inside(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True)
