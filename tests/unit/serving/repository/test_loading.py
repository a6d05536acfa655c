"""Loading: links, options of models for GPUs, and rejections before anything is allocated."""

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.repository import loading
from triptych_serving.repository.loading import Loader
from triptych_serving.repository.placement import Hardware
from triptych_serving.repository.repository import VersionFolder
from triptych_serving.repository.warmup import WarmUp, warm
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.memory.budget import Budgets, parse_limit
from triptych_serving.runtime.memory.cudart import GpuMemory

from ....fixtures.toy import ENCODER_MODELS, MODELS, edit_manifest

GPU = Device("cuda")
KINDS = {"toy": "Translator", "toy-bert": "TextModel", "toy-vit": "ImageModel"}
GIB = 1 << 30
MakeEntry = Callable[..., VersionFolder]


def look(device: Device) -> GpuMemory:
    """A GPU of 16 GiB, half of it free."""
    assert device == GPU
    return GpuMemory(8 * GIB, 16 * GIB)


def loader_of(limit: str = "", needed: bool = True) -> Loader:
    budgets = Budgets(parse_limit(limit) if limit else None, look)
    options = DecodeModelOptions(engine=EngineOptions(workers=1, slots=3))
    return Loader(options, EncoderOptions(), hardware=Hardware((GPU,), needed, slots=5), budgets=budgets)


@pytest.fixture
def entry_of(tmp_path: Path) -> MakeEntry:
    """Models, as if their graphs were for CUDA too unless the test says otherwise."""

    def make(name: str, half: bool = True) -> VersionFolder:
        repository = MODELS if name == "toy" else ENCODER_MODELS
        folder = Path(shutil.copytree(repository / name / "1", tmp_path / name / "1"))
        if half:
            edit_manifest(folder, lambda manifest: manifest["precisions"].update(fp16=manifest["precisions"]["fp32"]))
        return VersionFolder(name, 1, folder)

    return make


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The options that models would have been made with."""
    made: list[Any] = []
    for kind in KINDS.values():
        monkeypatch.setattr(loading, kind, lambda name, version, bundle, options: made.append(options))
    return made


@pytest.mark.parametrize("name", KINDS)
def test_a_gpu_model_gets_devices_slots_and_budgets(entry_of: MakeEntry, made: list[Any], name: str) -> None:
    loader = loader_of()
    loader.attempt(entry_of(name))
    [options] = made
    where = options.engine if name == "toy" else options
    assert (options.precision, where.devices) == ("fp16", (GPU,))
    assert where.budgets is loader.budgets
    if name == "toy":
        assert where.slots == 5


@pytest.mark.parametrize("name", KINDS)
def test_a_cpu_model_keeps_its_options(
    entry_of: MakeEntry, made: list[Any], caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.INFO)
    entry = entry_of(name, half=False)
    Loader(DecodeModelOptions(), EncoderOptions()).attempt(entry)
    assert made.pop().precision in ("fp32", "int8")
    assert not caplog.records, "nothing is logged without GPUs"
    loader_of(needed=False).attempt(entry)
    [options] = made
    where = options.engine if name == "toy" else options
    assert where.devices == (CPU,)
    assert where.budgets is None
    if name == "toy":
        assert where.slots == 3
    [record] = caplog.records
    told = "it has no graphs for CUDA, only fp32, int8; export it with --precision fp16"
    assert (record.levelname, record.message) == ("INFO", f"model {name} version 1 runs on the CPU: {told}")
    assert loader_of().attempt(entry) == (None, f"{entry.folder}: {told}")


def test_a_model_that_does_not_fit_is_rejected_with_numbers(entry_of: MakeEntry) -> None:
    entry, loader = entry_of("toy"), loader_of("1MiB")
    other = loader.budgets.of(GPU).reserve("model big version 2", {"weights": 1 << 20})
    model, fault = loader.attempt(entry)
    assert model is None
    assert fault.startswith(f"{entry.folder}: cannot be loaded: model toy version 1 takes ")
    assert " of cuda:0 (weights " in fault
    assert "0 B are left of 1 MiB (model big version 2 1 MiB): lower " in fault
    assert fault.endswith("raise --gpu-memory-limit")
    assert loader.budgets.of(GPU).reserved_bytes == other.bytes
    _, fault = loader_of("0.9").attempt(entry)
    assert "--gpu-memory-limit 0.9 is 14.4 GiB of cuda:0, of whose 16 GiB only 8 GiB are free" in fault


def test_a_swapped_link_does_not_mix_two_bundles(entry_of: MakeEntry, tmp_path: Path) -> None:
    entry, link = entry_of("toy", half=False), tmp_path / "link"
    link.symlink_to(entry.folder)
    model, fault = Loader(DecodeModelOptions(), EncoderOptions()).attempt(replace(entry, folder=link))
    assert model is not None, fault
    link.unlink()
    warm(model, WarmUp.ALL)  # reads the graphs that were not needed so far
    model.close()
