"""`triptych infer`: its arguments, and the arrays that it reads and writes."""

import io
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triptych_cli.encoders.tensors import _read
from triptych_client import Client, Tensor

from ....fixtures.encoders import write_tensors_bundle, write_text_tensors_bundle
from ..conftest import Run

NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.save(tmp_path / "numbers.npy", NUMBERS)
    return tmp_path / "numbers.npy"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write_tensors_bundle(tmp_path / "models")
    return tmp_path / "models"


def test_arrays_in_another_byte_order_and_of_a_pipe_are_read(run: Run, models: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "swapped.npy", NUMBERS.astype(">f4"))
    expected = run("infer", "--models", models, "--input", f"numbers={tmp_path / 'swapped.npy'}").success
    assert expected.startswith("sum float32 [2, 1]\n[[ 3.]\n [12.]]")
    stored = io.BytesIO()
    np.save(stored, NUMBERS)
    assert run("infer", "--models", models, "--input", "numbers=-", stdin=stored.getvalue()).success == expected


def test_texts_are_read_printed_and_stored(run: Run, tmp_path: Path) -> None:
    write_text_tensors_bundle(tmp_path / "models")
    np.save(tmp_path / "texts.npy", np.array([["\xe4b"], ["c"]]))
    given = ("infer", "--models", tmp_path / "models", "--input", f"texts={tmp_path / 'texts.npy'}")
    assert run(*given).success == "twice <U4 [2, 1]\n[['\xe4b\xe4b']\n ['cc']]\n"
    run(*given, "--output", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as stored:
        assert stored["twice"].tolist() == [["\xe4b\xe4b"], ["cc"]]
    np.save(tmp_path / "texts.npy", np.array(["a"], object), allow_pickle=True)
    assert "it holds no array of numbers or texts; save texts with array.astype(str)" in run(*given).error


def test_a_file_is_held_in_memory_once(tmp_path: Path) -> None:
    path = tmp_path / "numbers.npy"
    np.save(path, np.zeros(1 << 20))
    tracemalloc.start()
    try:
        array = _read("numbers", str(path))
        assert array.nbytes < tracemalloc.get_traced_memory()[1] < 1.5 * array.nbytes
    finally:
        tracemalloc.stop()


def test_inputs_that_cannot_be_used_are_named(run: Run, models: Path, file: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "many.npz", numbers=NUMBERS)
    (tmp_path / "empty.npy").touch()
    (tmp_path / "bad.npy").write_bytes(b"PK\x03\x04")
    (tmp_path / "text.npy").write_text("1 2 3")
    for given, message in (
        (f"other={file}", "there is none 'other'; there are: numbers FP32 [-1, -1]"),
        (f"numbers={tmp_path / 'many.npz'}", "many.npz is an .npz archive; give one .npy for each input"),
        (f"numbers={tmp_path / 'empty.npy'}", "empty.npy cannot be read as .npy: "),
        (f"numbers={tmp_path / 'bad.npy'}", "bad.npy cannot be read as .npy: File is not a zip file"),
        (f"numbers={tmp_path / 'text.npy'}", "text.npy cannot be read as .npy: it holds no array of numbers or texts; save"),
    ):
        assert message in run("infer", "--models", models, "--input", given).error
    for flag in ("--input", "--image"):
        result = run("infer", "--models", models, "--input", f"numbers={file}", flag, f"numbers={file}")
        assert "input 'numbers' is given twice" in result.error


def test_a_choice_among_models_is_left_to_the_caller(run: Run, models: Path, file: Path) -> None:
    write_tensors_bundle(models, "second")
    given = ("infer", "--models", models, "--input", f"numbers={file}")
    assert run(*given).error == "several models match, set --model to one of: second, tensors"
    assert run(*given, "--model", "second").success.startswith("sum float32 [2, 1]")
    assert "a server needs it" in " ".join(run("infer", "--help").success.split())


@pytest.mark.parametrize("kind", ["complex64", "datetime64[s]"])
def test_values_that_no_tensor_holds_are_not_sent(kind: str, run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "odd.npy", np.zeros(2, kind))
    message = run("infer", "--server", "localhost:1", "--model", "m", "--input", f"odd={tmp_path / 'odd.npy'}").error
    assert "expected numbers, booleans or texts" in message


def test_outputs_may_have_the_names_of_arguments(run: Run, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def infer(*_: Any, **__: Any) -> dict[str, Any]:
        numbers = Tensor("FP32", (2, 3), NUMBERS.tobytes())
        return {"file": numbers, "allow_pickle": replace(numbers, shape=(1, 6))}

    monkeypatch.setattr(Client, "infer", infer)
    given = ("infer", "--server", "localhost:1", "--model", "m", "--input", f"x={file}")
    assert run(*given, "--output", tmp_path / "out").success == "file float32 [2, 3]\nallow_pickle float32 [1, 6]\n"
    with np.load(tmp_path / "out.npz", allow_pickle=False) as stored:
        np.testing.assert_array_equal(stored["file"], NUMBERS)
        np.testing.assert_array_equal(stored["allow_pickle"], NUMBERS.reshape(1, 6))
