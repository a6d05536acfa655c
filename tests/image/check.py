"""Builds the image's stages without a container engine, and runs the server in them as a container would.

    python -m tests.image.check [--target cpu] [--work FOLDER] [--base FOLDER]

For machines that have no engine: the commands are the Dockerfile's own, read from it. Debian's Python 3.11 stands in for the
official image's, otherwise the same release of Debian. What is checked: the steps; the server as the image's user, with a
root that cannot be written to, at first with the embedded models, then with mounted ones; the health command before, while
and after it serves; one translation by the image's own command line; SIGTERM to process 1, and its exit code.
Needs root, debootstrap, bwrap and a network.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

from ..fixtures.toy import MODELS, SOURCE, TARGET
from ..service.support.processes import PATIENCE_SECONDS, free_port
from .dockerfile import DOCKERFILE, setting, stages
from .roots import Builder, Container, Process, make_base

TEXT, WORD = "The weather is nice today.", "Wetter"


@click.command()
@click.option("--target", type=click.Choice(["cpu", "cuda"]), default="cpu")
@click.option("--work", type=click.Path(path_type=Path), default=None, help="To keep the roots in; made by this.")
@click.option("--base", type=click.Path(path_type=Path), default=None, help="Made there unless it exists.")
def main(target: str, work: Path | None, base: Path | None) -> None:
    """Build and run a target."""
    if os.geteuid() != 0:
        raise click.ClickException("only root can make root file systems")
    for program in ("debootstrap", "bwrap"):
        if shutil.which(program) is None:
            raise click.ClickException(f"{program} is not installed")
    with contextlib.ExitStack() as stack:
        if work:
            work.mkdir(parents=True)
        folder = work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="triptych-image-")))
        base = base or folder / "debian"
        if not base.exists():
            make_base(base)
        builder = Builder(stages(DOCKERFILE.read_text(encoding="utf-8")), base, folder)
        root = builder.build(target)
        click.echo(f"== {target}: {_megabytes(root)} MB, {_megabytes(root / 'opt/triptych')} MB of them above the base image")
        click.echo(f"   the package with its models: {_own_megabytes(root)} MB")
        if target == "cuda":
            link(Container(builder.stages, target, root, {}))
        serve(builder, target, root, {}, {}, TEXT, WORD)
        serve(builder, target, root, {"TRIPTYCH_MODELS": "/models"}, {MODELS: "/models"}, SOURCE, TARGET)
    click.echo("everything held")


def link(container: Container) -> None:
    """Check that ONNX Runtime's part for CUDA finds all that it loads, but for the driver, which is the host's."""
    libraries = "/opt/triptych/lib/python3.*/site-packages/onnxruntime/capi/libonnxruntime_providers_cuda.so"
    missing = container.run(
        ["sh", "-c", f"ldd {libraries} | grep 'not found'; ls /opt/triptych/nvidia/cudnn/lib/libcudnn.so.9"]
    )
    _expect(missing, 0, "libcudnn.so.9")
    lines = [line.split()[0] for line in missing.stdout.splitlines() if "not found" in line]
    assert lines == ["libcuda.so.1"], lines
    _expect(container.run(["python", "-c", "import cuda.bindings.runtime"]), 0, "")
    _expect(container.run(["triptych", "serve", "--device", "cuda"]), 1, "")  # and not serve from the CPU


def serve(
    builder: Builder, target: str, root: Path, more: dict[str, str], mounts: dict[Path, str], text: str, word: str
) -> None:
    """Run the server, ask it, and end it."""
    click.echo(f"== serve {more or 'the embedded models'}")
    variables = {
        "TRIPTYCH_HOST": "127.0.0.1",
        "TRIPTYCH_PORT": str(free_port()),
        "TRIPTYCH_METRICS_PORT": str(free_port()),
        **more,
    }
    for place in mounts.values():  # as a container engine does
        (root / place.lstrip("/")).mkdir(exist_ok=True)
    container = Container(builder.stages, target, root, variables, mounts)
    probe = setting(builder.stages, target, "HEALTHCHECK").exec_form
    _expect(container.run(probe), 1, "not serving")
    with _running(container, setting(builder.stages, target, "ENTRYPOINT").exec_form, builder.work) as process:
        _wait(container, probe, process)
        click.echo(f"   ready; user {_user(process.pid)}")
        address = f"127.0.0.1:{variables['TRIPTYCH_PORT']}"
        _expect(container.run(["triptych", "translate", "--server", address, text]), 0, word)
        _expect(container.run(["sh", "-c", "touch /anything || touch /tmp/anything"]), 1, "")
        signal_name = setting(builder.stages, target, "STOPSIGNAL").text
        subprocess.run(["kill", f"-{signal_name.removeprefix('SIG')}", str(process.pid)], check=True)
        code = process.fence.wait(PATIENCE_SECONDS)
        assert code == 0, f"exit code {code}"
        click.echo("   exit code 0 after SIGTERM")
    _expect(container.run(probe), 1, "not serving")


@contextlib.contextmanager
def _running(container: Container, command: list[str], work: Path) -> Iterator[Process]:
    log = work / "log"
    process = container.start(command, log)
    try:
        yield process
    except BaseException:
        click.echo(log.read_text(), err=True)
        raise
    finally:
        process.fence.kill()


def _wait(container: Container, probe: list[str], process: Process) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while container.run(probe).returncode != 0:
        assert process.fence.poll() is None, "the server ended"
        assert time.monotonic() < until, "the server does not get ready"


def _expect(result: subprocess.CompletedProcess[str], code: int, output: str) -> None:
    click.echo(f"   {result.args[-1]!r} -> {result.returncode} {result.stdout.strip()}")
    assert result.returncode == code, result.stderr
    assert output in result.stdout, result.stdout


def _user(pid: int) -> str:
    """Inside, as /proc shows it."""
    status = Path(f"/proc/{pid}/uid_map").read_text().split()
    lines = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    assert int(lines["CapEff"], 16) == 0, lines["CapEff"]
    assert lines["NoNewPrivs"] == "1"
    return f"{status[0]}, no capabilities, no new privileges"


def _megabytes(folder: Path) -> int:
    return int(subprocess.run(["du", "-sm", folder], check=True, capture_output=True, text=True).stdout.split()[0])


def _own_megabytes(root: Path) -> int:
    return sum(_megabytes(folder) for folder in root.glob("opt/triptych/lib/python3.*/site-packages/triptych*"))


if __name__ == "__main__":
    main()
