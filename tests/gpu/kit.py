"""Tests and benchmarks for a GPU in one command, with a table of the results.

    python -m tests.gpu.kit --work /tmp/kit --out OUT [--seconds 570] [--stages environment,tests,offline]
        [--wheels FOLDER] [--site FOLDER ...] [--checkpoint FOLDER --pairs FILE]

Runs from the repository, which need not be installed. PyTorch, onnxruntime-gpu and the other packages are the interpreter's, or
come from `--site`, folders of unpacked packages that precede its own, or from `--wheels`, which are installed into the work
folder. Stages run one after the other, each within its own time limit and all within `--seconds`; the others are postponed. The
next call with the same `--work` continues where this one stopped, so that a GPU is needed for minutes at a time only. OUT
receives two files: results.json with all measurements, and log.txt.

A rehearsal, without a GPU: --device cpu --tiny.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from .runner import DONE, LOGS, POSTPONED, Outcome, Runner
from .stages import ROOT, Setup, stages
from .verdict import read_results, targets

PACKAGES = ("protos", "serving", "export", "training", "")  # of the repository, in the order of an installation
SITE = "site"
LEAVES_OUT = ("soak",)  # unless named
FIRST = "environment"  # if it fails, all others would too
LOG_BYTES = 400_000  # of each stage, its end
LIBRARIES = ("nvidia/*/lib", "nvidia/*/lib64")  # of the vendor's packages, which a runtime in another folder does not find


@click.command()
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Kept from call to call.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="For results.json and log.txt.  [default: WORK]")
@click.option("--device", default="cuda", show_default=True)
@click.option("--seconds", default=570.0, show_default=True, help="That the whole call has.")
@click.option("--stages", "names", default="", help="Only these, with commas.  [default: all but soak]")
@click.option("--again", is_flag=True, help="Also those that are done.")
@click.option("--keep-going", is_flag=True, help="Even if the environment lacks something.")
@click.option("--wheels", type=click.Path(path_type=Path, exists=True), default=None, help="Folder of wheels to install.")
@click.option("--site", type=click.Path(path_type=Path, exists=True), multiple=True, help="Folder of packages. Repeatable.")
@click.option("--checkpoint", default="", help="A trained translation model, to measure quality.")
@click.option("--pairs", default="", help="Its test set.")
@click.option("--tiny", is_flag=True, help="To rehearse: everything as small as can be.")
def main(  # noqa: PLR0917 - click passes them by name
    work: Path,
    out: Path | None,
    device: str,
    seconds: float,
    names: str,
    again: bool,
    keep_going: bool,
    wheels: Path | None,
    site: Sequence[Path],
    checkpoint: str,
    pairs: str,
    tiny: bool,
) -> None:
    started, work = time.monotonic(), work.absolute()
    sites = [*(folder.absolute() for folder in site), *([_install(wheels, work)] if wheels else [])]
    every = stages(Setup(sys.executable, work, device, tiny, checkpoint, pairs))
    chosen = [name for name in names.split(",") if name] or [one.name for one in every if one.name not in LEAVES_OUT]
    if unknown := set(chosen) - {one.name for one in every}:
        raise click.UsageError(f"--stages: {', '.join(sorted(unknown))}: choose of {', '.join(one.name for one in every)}")
    runner = Runner(work, seconds - (time.monotonic() - started), _variables(sites, work), click.echo)
    for stage in every:
        if stage.name in chosen:
            runner.run(stage, again)
            if stage.name == FIRST and runner.outcomes[FIRST].status != DONE and not keep_going:
                click.echo((work / LOGS / f"{FIRST}.log").read_text(encoding="utf-8"))
                break
    _report(work, out or work, [one.name for one in every], runner.outcomes)
    if tiny:
        click.echo("a rehearsal: the figures mean nothing")
    wrong = [name for name in chosen if name in runner.outcomes and runner.outcomes[name].status not in (DONE, POSTPONED)]
    sys.exit(1 if wrong else 0)


def _install(wheels: Path, work: Path) -> Path:
    """Install the wheels into a folder of their own, once."""
    target = work / SITE
    if not target.exists():
        files = [str(file.absolute()) for file in sorted(wheels.glob("*.whl"))]
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile", "--target", str(target)]
        subprocess.run([*pip, *files], check=True)
    return target


def _variables(sites: Sequence[Path], work: Path) -> dict[str, str]:
    """Return the environment of every command: packages, CUDA libraries, and a cache for compiled PyTorch code."""
    own = [str(ROOT / name) if name else str(ROOT) for name in PACKAGES]
    paths = [*map(str, sites), *own, *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {
        "PYTHONPATH": ":".join(paths),
        "LD_LIBRARY_PATH": library_path([*map(str, sites), *sys.path]),
        "PYTHONUNBUFFERED": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
        "HF_HUB_OFFLINE": "1",
    }


def library_path(roots: Sequence[str]) -> str:
    """Return LD_LIBRARY_PATH with the vendor's packages in these folders first."""
    found = [str(folder) for root in roots for place in LIBRARIES for folder in sorted(Path(root or ".").glob(place))]
    return ":".join([*dict.fromkeys(found), *filter(None, [os.environ.get("LD_LIBRARY_PATH", "")])])


def _report(work: Path, out: Path, order: Sequence[str], outcomes: dict[str, Outcome]) -> None:
    """Print the tables and write the two files."""
    out.mkdir(parents=True, exist_ok=True)
    results = read_results(work / "results")
    click.echo(f"\n{'stage':18} {'':10} {'seconds':>8}  note")
    for name in order:
        if name in outcomes:
            found = outcomes[name]
            click.echo(f"{name:18} {found.status:10} {found.seconds:8.1f}  {found.note}".rstrip())
    click.echo(f"\n{'target':52} {'wanted':>8} {'found':>8}")
    verdicts = list(targets(results))
    for line in verdicts:
        found_text = "" if line.found is None else f"{line.found:,.2f}"
        click.echo(f"{line.what:52} {line.wanted:8.2f} {found_text:>8}  {line.verdict}")
    content = {
        "stages": {name: asdict(outcomes[name]) for name in order if name in outcomes},
        "verdicts": [{**asdict(line), "verdict": line.verdict} for line in verdicts],
        "results": results,
    }
    (out / "results.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    parts = []
    for name in order:
        log = work / LOGS / f"{name}.log"
        if log.exists():
            parts.append(f"==== {name}\n{log.read_bytes()[-LOG_BYTES:].decode('utf-8', errors='replace')}\n")
    (out / "log.txt").write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
