"""`triptych infer`: run a model of plain tensors."""

import sys
from pathlib import Path
from typing import Any

import click

from triptych_cli.common import options
from triptych_cli.common.connection import connect
from triptych_cli.common.engine import open_engine
from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.options import asks_server
from triptych_embedded.request import ModelChoice

TASK = "tensors"


def _named(value: str) -> tuple[str, str]:
    """Parse `NAME=FILE` or `NAME=K`: the name of an input or output, and what belongs to it."""
    name, equals, file = value.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{value!r} is not a name, = and a file or number")
    return name, file


@click.command(name="infer")
@click.option("--input", "inputs", type=_named, multiple=True, metavar="NAME=FILE.npy", help="An input. Repeatable.")
@click.option(
    "--image",
    "images",
    type=_named,
    multiple=True,
    metavar="NAME=FILE",
    help="A JPEG, PNG or WebP file for an input of images. Repeatable: each is a row.",
)
@click.option(
    "--labels", type=_named, multiple=True, metavar="NAME=K", help="Print the K best labels of an output, and no others."
)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="An .npz file.  [default: print outputs]")
@options.model_choice
def command(
    inputs: tuple[tuple[str, str], ...],
    images: tuple[tuple[str, str], ...],
    labels: tuple[tuple[str, str], ...],
    output: Path | None,
    **values: Any,
) -> None:
    """Run a model of plain tensors, such as an imported ONNX file, on arrays of the types and shapes that it declares.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on a model of --models.
    """
    needs("numpy", "serve")
    import numpy as np

    if not inputs and not images:
        raise click.UsageError("name the inputs with --input or --image")
    arrays = {name: _read(name, path) for name, path in inputs}
    files: dict[str, list[bytes]] = {}
    for name, path in images:
        files.setdefault(name, []).append(_read_file(path))
    best = {name: _count(name, text) for name, text in labels}
    ranked: dict[str, list[str]] = {}
    choice = ModelChoice(**values)
    if asks_server():
        with connect(choice.server) as client:
            found = client.infer(choice.model, {**arrays, **files}, outputs=best)
        with one_line(TypeError):
            results = {name: np.asarray(tensor) for name, tensor in found.items() if name not in best}
        ranked = {name: list(found[name].strings) for name in best}
    else:
        with open_engine(choice, TASK) as (registry, selector):
            from triptych_serving.models.tensors.tensor_model import TensorModel

            model = registry.named(selector)
            if not isinstance(model, TensorModel):
                raise click.ClickException(
                    f"model {choice.model!r} does not take plain tensors; it is for {model.manifest.task}"
                )
            arrays |= {name: model.read_images(name, contents) for name, contents in files.items()}
            results = dict(model.run(arrays, list(best)))
            for name, count in best.items():
                rows = model.rank(name, results.pop(name), count)
                ranked[name] = [f"{one.score}:{one.index}:{one.label}" for row in rows for one in row]
    if output:
        np.savez(output, allow_pickle=False, **results)
    for name, array in results.items():
        click.echo(f"{name} {array.dtype} {list(array.shape)}" + ("" if output else f"\n{array}"))
    for name, lines in ranked.items():
        click.echo("\n".join((f"{name} score:index:label", *lines)))


def _count(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise click.UsageError(f"--labels {name}={text}: {text!r} is no number of labels, must be at least 1")
    return int(text)


def _read_file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be read: {error}") from error


def _read(name: str, path: str) -> Any:
    import numpy as np

    try:
        return np.load(sys.stdin.buffer if path == "-" else path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{name}: {path} cannot be read as .npy: {error}") from error
