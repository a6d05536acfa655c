"""Runs of a foreign model in a process of its own, with bounded memory and time.

`python -m triptych_export.onnx_files.trial MODEL INPUTS OUTPUTS BYTES` runs each set of inputs in the file INPUTS; with a fifth
argument, it looks for the first one that runs.
"""

import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych_export.errors import SourceError
from triptych_serving.bundle.manifest.tensors import as_objects
from triptych_serving.errors import EngineError, ServingError
from triptych_serving.runtime.session import Session, seed_sessions

Arrays = Mapping[str, NDArray[Any]]

MOST_SECONDS = 120  # of CPU time, for all runs
SPARE_BYTES = 4 << 30  # of address space besides four times the model's files
SEED = 27  # of graphs that draw random numbers, such as voices: to be compared, they draw the same
SEPARATOR = "\n"  # between the number of a set and a name: no name has a line break


def try_run(model: Path, inputs: Sequence[Arrays], bytes_of_model: int, first: bool = False) -> list[dict[str, NDArray[Any]]]:
    """Run a model on sets of inputs in a process of its own; returns the outputs of each.

    Args:
        model: the file.
        inputs: the sets.
        bytes_of_model: size of the file and of those that it refers to.
        first: sets may fail; returns no outputs for these, and ends with the first one that runs.

    Raises:
        SourceError: the runtime cannot load or run it, or it needs more memory or time than a trial may take.
    """
    most = 4 * bytes_of_model + sum(array.nbytes for one in inputs for array in one.values()) + SPARE_BYTES
    with TemporaryDirectory(prefix="triptych-trial-") as folder:
        before, after = Path(folder) / "inputs.npz", Path(folder) / "outputs.npz"
        _write(before, inputs)
        command = [sys.executable, "-m", __name__, *map(str, (model.resolve(), before, after, most)), *["first"] * first]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=2 * MOST_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise SourceError(f"{model}: a trial run did not end within {2 * MOST_SECONDS} s") from error
        if done.returncode:
            *_, last = done.stderr.strip().splitlines() or [f"ended by signal {-done.returncode}"]
            limits = f"{most / 2**30:.1f} GiB of memory and {MOST_SECONDS} s of CPU time"
            raise SourceError(f"{model}: a trial run with {limits} failed: {last:.600}")
        return _read(after)


def _write(path: Path, sets: Sequence[Arrays]) -> None:
    named: dict[str, Any] = {"count": np.array(len(sets))}
    for number, one in enumerate(sets):
        named |= {f"{number}{SEPARATOR}{name}": _storable(array) for name, array in one.items()}
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, **named)


def _read(path: Path) -> list[dict[str, NDArray[Any]]]:
    with np.load(path, allow_pickle=False) as stored:
        sets: list[dict[str, NDArray[Any]]] = [{} for _ in range(int(stored["count"]))]
        for key in stored.files:
            number, found, name = key.partition(SEPARATOR)
            if found:
                sets[int(number)][name] = as_objects(stored[key])
    return sets


def _storable(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype == object and isinstance(next(array.flat, None), dict):  # of ZipMap, in the order of the labels
        return np.array([list(one.values()) for one in array], np.float32)
    return array.astype(str) if array.dtype == object else array


def main(model: str, before: str, after: str, most_bytes: str, first: str = "") -> None:
    """Run all sets of inputs, within the limits; with `first`, up to the first one that runs."""
    resource.setrlimit(resource.RLIMIT_AS, (int(most_bytes), int(most_bytes)))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS + 1))
    seed_sessions(SEED)
    session = Session(Path(model))
    outputs: list[dict[str, NDArray[Any]]] = []
    sets = _read(Path(before))
    for number, one in enumerate(sets):
        try:
            outputs.append(dict(zip(session.outputs, session.run(one), strict=True)))
        except EngineError:
            if not first or number + 1 == len(sets):
                raise
            outputs.append({})
        else:
            if first:
                break
    _write(Path(after), outputs)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except ServingError as error:
        sys.exit(" ".join(str(error).split()))  # one line, the last of stderr: the runtime's log is above it
