"""A bundle on disk: nothing damaged is served."""

import shutil
from pathlib import Path

import pytest

from triptych_serving.bundle import bundle as module
from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.errors import BundleError

from ....fixtures.toy import BUNDLE, tamper, truncate


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(BUNDLE, tmp_path / "bundle"))


def faults_of(folder: Path) -> list[str]:
    with pytest.raises(BundleError) as error:
        open_bundle(folder)
    assert str(folder) in str(error.value)
    return list(error.value.faults)


def test_every_damaged_file_is_named(copy: Path) -> None:
    truncated = truncate(copy / "weights.fp32.bin")
    tamper(copy / "tokenizer.json")
    for name in ("step.fp32.onnx", "step.int8.onnx"):
        (copy / name).unlink()
    (copy / "step.int8.onnx").symlink_to(BUNDLE / "step.int8.onnx")
    assert sorted(faults_of(copy)) == sorted(
        [
            truncated,
            "tokenizer.json does not have its recorded SHA-256: it was changed or damaged",
            "step.fp32.onnx is missing or not a plain file",
            "step.int8.onnx is missing or not a plain file",
        ]
    )


def test_a_file_that_cannot_be_read_is_named(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module, "sha256", refuse)
    assert "tokenizer.json cannot be read: Permission denied" in faults_of(copy)


def test_the_default_precision_is_the_manifests(bundle: Bundle) -> None:
    assert bundle.precision(None) == "fp32"
    assert bundle.precision("int8") == "int8"
    with pytest.raises(BundleError, match="precision 'fp16' is not in this bundle; it has: fp32, int8"):
        bundle.precision("fp16")
