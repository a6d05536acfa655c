"""Placement of models by their graphs and by the flags."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.errors import BundleError, DeviceError
from triptych_serving.repository import placement
from triptych_serving.repository.placement import GPU_SLOTS, Hardware, Placement, place
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.memory.budget import MemoryLimit

from ....fixtures.encoders import write_tensors_bundle
from ....fixtures.toy import BUNDLE

GPUS = Device("cuda"), Device("cuda", 1)
AUTO, NEEDED = Hardware(GPUS), Hardware(GPUS, needed=True)


def bundle_of(*precisions: str, default: str = "") -> Bundle:
    """The toy's, as if it had graphs of these precisions."""
    bundle = open_bundle(BUNDLE)
    graphs: Any = dict.fromkeys(precisions, bundle.manifest.precisions["fp32"])
    return replace(bundle, manifest=replace(bundle.manifest, precisions=graphs, default_precision=default or precisions[0]))


@pytest.mark.parametrize("hardware", [AUTO, NEEDED])
@pytest.mark.parametrize("wanted", [None, "fp16"])
def test_models_with_gpu_graphs_use_all_gpus(hardware: Hardware, wanted: str | None) -> None:
    found = place(bundle_of("int8", "fp32", "fp16"), wanted, hardware)
    assert found == Placement("fp16", GPUS)
    assert found.on_gpu


def test_plain_tensors_use_all_gpus_in_their_own_precision(tmp_path: Path) -> None:
    write_tensors_bundle(tmp_path)
    assert place(open_bundle(tmp_path / "tensors/1"), None, NEEDED) == Placement("fp32", GPUS)


@pytest.mark.parametrize(
    ("precisions", "wanted", "remark"),
    [
        (("int8", "fp32"), None, "it has no graphs for CUDA, only fp32, int8; export it with --precision fp16"),
        (("int8", "fp32", "fp16"), "int8", "precision int8 runs on the CPU only"),
    ],
)
def test_a_model_without_gpu_graphs_runs_on_the_cpu_unless_a_gpu_is_required(
    precisions: tuple[str, ...], wanted: str | None, remark: str
) -> None:
    bundle = bundle_of(*precisions)
    found = place(bundle, wanted, AUTO)
    assert (found.precision, found.devices, found.on_gpu, found.remark) == ("int8", (CPU,), False, remark)
    with pytest.raises(BundleError, match=remark):
        place(bundle, wanted, NEEDED)


@pytest.mark.parametrize(("precisions", "served"), [(("fp16", "int8", "fp32"), "int8"), (("fp16",), "fp16")])
def test_the_cpu_runs_gpu_graphs_only_as_a_last_resort(precisions: tuple[str, ...], served: str) -> None:
    bundle = bundle_of(*precisions, default="fp16")
    assert place(bundle, None, Hardware()) == Placement(served, (CPU,))


@pytest.mark.parametrize(
    ("precisions", "wanted", "faster", "served"),
    [
        (("int8", "int8-caches"), None, True, "int8-caches"),
        (("int8", "int8-caches"), None, False, "int8"),
        (("int8", "int8-caches"), "int8", True, "int8"),
        (("int8", "fp32"), None, True, "int8"),
        (("int4", "int4-int8-caches"), None, True, "int4-int8-caches"),
        (("int4", "int8-caches"), None, True, "int4"),
        (("fp32", "int8", "int8-caches"), None, True, "fp32"),
        (("int8-caches",), None, False, "int8-caches"),
    ],
)
def test_the_processor_chooses_the_caches(
    monkeypatch: pytest.MonkeyPatch, precisions: tuple[str, ...], wanted: str | None, faster: bool, served: str
) -> None:
    monkeypatch.setattr(placement, "prefers_int8_caches", lambda head_dim: faster)
    assert place(bundle_of(*precisions), wanted, Hardware()).precision == served


@pytest.mark.parametrize("hardware", [Hardware(), AUTO, NEEDED])
def test_an_unknown_precision_is_rejected(hardware: Hardware) -> None:
    with pytest.raises(BundleError, match="precision 'fp64' is not in this bundle; it has: fp16, fp32"):
        place(bundle_of("fp32", "fp16"), "fp64", hardware)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine with two GPUs; what it was asked for."""
    asked: list[str] = []

    def parse(text: str) -> tuple[Device, ...]:
        asked.append(text)
        return {"cpu": (CPU,), "auto": GPUS, "cuda": GPUS[:1]}[text]

    monkeypatch.setattr(placement, "parse_devices", parse)
    return asked


@pytest.mark.parametrize(
    ("flags", "hardware"),
    [
        (("cpu",), Hardware()),
        (("auto",), Hardware(GPUS, slots=GPU_SLOTS)),
        (("cuda",), Hardware(GPUS[:1], needed=True)),
        (("auto", "8GiB", 17), Hardware(GPUS, memory_limit=MemoryLimit(bytes=8 << 30), slots=17)),
    ],
)
def test_hardware_flags_are_parsed(found: list[str], flags: tuple[Any, ...], hardware: Hardware) -> None:
    assert Hardware.parse(*flags) == hardware
    assert found == [flags[0]]
    with pytest.raises(DeviceError, match="8 apples"):
        Hardware.parse(flags[0], "8 apples")


@pytest.mark.parametrize(
    ("flags", "has_cuda", "said"),
    [
        (("auto",), True, ["all models run on the CPU: there is no GPU"]),
        (("auto", "8GiB"), False, ["all models run on the CPU: there is no GPU"]),
        (("auto",), False, []),
        (("cpu",), True, []),
        (("cpu", "8GiB"), True, ["all models run on the CPU: --gpu-memory-limit has no effect with --device cpu"]),
    ],
)
def test_unused_gpus_are_explained(
    monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], has_cuda: bool, said: list[str]
) -> None:
    monkeypatch.setattr(placement, "parse_devices", lambda _: (CPU,))
    monkeypatch.setattr(placement, "has_cuda", lambda: has_cuda)
    monkeypatch.setattr(placement, "why_no_gpu", lambda: "there is no GPU")
    hardware = Hardware.parse(*flags)
    assert hardware.gpus == ()
    assert hardware.describe() == said
