"""Fixtures of the GPU suite: the device, and models that are exported in fp16.

Without a GPU the suite is skipped with the reason. `TRIPTYCH_TEST_DEVICE=cpu pytest -m gpu tests/gpu` rehearses the suite on
the CPU with the same graphs; `TRIPTYCH_TEST_DEVICE=cuda:1` selects another GPU, and a missing one is then an error. If
TRIPTYCH_TEST_MODELS names a folder, the models are kept there for the next run.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from triptych_export.exporter import ExportOptions, export
from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.device_selection import parse_devices, why_no_gpu
from triptych_serving.runtime.memory import Memory, open_memory

from ..fixtures.toy import HERE
from .models import save_tiny_bert, save_tiny_vit

VARIABLE, KEPT = "TRIPTYCH_TEST_DEVICE", "TRIPTYCH_TEST_MODELS"
COMPLETE = ".complete"  # all models are there
PRECISIONS = ("fp32", "fp16")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the whole suite without a GPU."""
    if os.environ.get(VARIABLE) or not any(item.get_closest_marker("gpu") for item in items):
        return
    if reason := why_no_gpu():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(f"no GPU ({reason}); {VARIABLE}=cpu rehearses on the CPU"))


@pytest.fixture(scope="session")
def device() -> Device:
    """Device of the suite."""
    return parse_devices(os.environ.get(VARIABLE) or "cuda")[0]


@pytest.fixture(scope="session")
def gpu(device: Device) -> Device:
    """Device of the suite, for tests that are meaningless on the CPU."""
    if device.kind == "cpu":
        pytest.skip("means something on a GPU only")
    return device


@pytest.fixture
def memory(device: Device) -> Iterator[Memory]:
    """Memory and a stream of the device."""
    memory = open_memory(device)
    yield memory
    memory.close()


@pytest.fixture(scope="session")
def repository(device: Device, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Repository with a model of each task, `toy`, `toy-bert` and `toy-vit`, in fp32 and fp16."""
    kept = os.environ.get(KEPT)
    folder, work = Path(kept) if kept else tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("checkpoints")
    if (folder / COMPLETE).exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    save_tiny_bert(work / "bert")
    save_tiny_vit(work / "vit")
    for name, checkpoint in (("toy", HERE / "checkpoint"), ("toy-bert", work / "bert"), ("toy-vit", work / "vit")):
        export(checkpoint, ExportOptions(folder, name=name, precisions=PRECISIONS), lambda line: None)
    (folder / COMPLETE).touch()
    return folder


@pytest.fixture(scope="session")
def bundle(repository: Path) -> Bundle:
    """Translation model."""
    return open_bundle(repository / "toy" / "1")
