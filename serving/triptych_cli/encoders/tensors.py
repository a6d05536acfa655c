"""`triptych infer`: run a model of plain tensors."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

import click

from triptych_cli.common import options
from triptych_cli.common.connection import connect
from triptych_cli.common.engine import open_engine
from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.lines import check_stdout, read_binary
from triptych_cli.common.options import asks_server
from triptych_embedded.request import InputError, ModelChoice

if TYPE_CHECKING:
    from triptych_client import Tensor
    from triptych_serving.models.tensors.tensor_model import TensorModel
    from triptych_serving.repository.registry import ModelSelector, Registry

TASK = "tensors"


def _named(value: str) -> tuple[str, str]:
    """Parse `NAME=FILE` or `NAME=K`: the name of an input or output, and what belongs to it."""
    name, equals, file = value.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{value!r} is not a name, = and its value")
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
@options.models
@options.optional("--model", default="", help="Name of the model; a server needs it.  [default: the only one of plain tensors]")
@options.model_version
@options.server
@options.running
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
    if not inputs and not images:
        raise click.UsageError("name the inputs with --input or --image")
    check_stdout()
    _refuse_twice("input", [*(name for name, _ in inputs), *{name for name, _ in images}])
    _refuse_twice("output of --labels", [name for name, _ in labels])
    arrays = {name: _read(name, path) for name, path in inputs}
    files: dict[str, list[bytes]] = {}
    for name, path in images:
        files.setdefault(name, []).append(read_binary(path))
    best = {name: _count(name, text) for name, text in labels}
    ranked: dict[str, list[str]] = {}
    choice = ModelChoice(**values)
    if asks_server():
        with connect(choice.server) as client, one_line(TypeError, ValueError):  # of arrays that no tensor can hold
            found = client.infer(choice.model, {**arrays, **files}, choice.model_version, best)
            results = {name: _array(tensor) for name, tensor in found.items() if name not in best}
        ranked = {name: list(found[name].strings) for name in best}
    else:
        with one_line(InputError), open_engine(choice, TASK) as (registry, selector):
            model = _find(registry, selector)
            arrays |= {name: model.read_images(name, contents) for name, contents in files.items()}
            results = {name: _printable(array) for name, array in model.run(arrays, list(best)).items()}
            for name, count in best.items():
                rows = model.rank(name, results.pop(name), count)
                ranked[name] = [f"{one.score}:{one.index}:{one.label}" for row in rows for one in row]
    if output:
        _write(output, results)
    for name, array in results.items():
        click.echo(f"{name} {array.dtype} {list(array.shape)}" + ("" if output else f"\n{array}"))
    for name, lines in ranked.items():
        click.echo("\n".join((f"{name} score:index:label", *lines)))


def _find(registry: "Registry", selector: "ModelSelector") -> "TensorModel":
    """Return the named model; without a name, the only one of plain tensors. Raises click.ClickException: there is none."""
    from triptych_serving.models.tensors.tensor_model import TensorModel

    if not selector.model:
        names = sorted({model.name for model in registry.ready if isinstance(model, TensorModel)})
        if len(names) != 1:
            several = f"several models match, set --model to one of: {', '.join(names)}"
            raise click.ClickException(several if names else "no model takes plain tensors")
        selector = replace(selector, model=names[0])
    model = registry.named(selector)
    if not isinstance(model, TensorModel):
        raise click.ClickException(f"model {model.name!r} does not take plain tensors; it is for {model.manifest.task}")
    return model


def _array(tensor: "Tensor") -> Any:
    import numpy as np

    return np.array(tensor.strings, str).reshape(tensor.shape) if tensor.datatype == "BYTES" else np.asarray(tensor)


def _printable(array: Any) -> Any:
    """Return texts as numpy prints and stores them; an array of numbers as it is."""
    return array.astype(str) if array.dtype == object else array


def _refuse_twice(what: str, names: Sequence[str]) -> None:
    """Raise click.UsageError if a name occurs twice."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise click.UsageError(f"{what} {twice[0]!r} is given twice")


def _write(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write an .npz file as numpy.savez, whose arguments' names arrays must not have."""
    import numpy as np

    with ZipFile(path if path.suffix == ".npz" else path.with_name(f"{path.name}.npz"), "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _count(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise click.UsageError(f"--labels {name}={text}: {text!r} is no number of labels, must be at least 1")
    return int(text)


def _read(name: str, path: str) -> Any:
    import numpy as np

    try:
        with open(path, "rb") if Path(path).is_file() else BytesIO(read_binary(path)) as content:  # a pipe cannot seek
            array = np.load(content, allow_pickle=False)
    except (OSError, ValueError, EOFError, BadZipFile, TokenError) as error:
        wanted = "it holds no array of numbers or texts; save texts with array.astype(str)"
        reason = wanted if "pickle" in str(error) else error  # numpy's advice is to load it unsafely
        raise click.ClickException(f"{name}: {path} cannot be read as .npy: {reason}") from error
    if not isinstance(array, np.ndarray):
        raise click.ClickException(f"{name}: {path} is an .npz archive; give one .npy for each input")
    return array.astype(array.dtype.newbyteorder("="), copy=False)
