"""Arguments of the application."""

from pathlib import Path
from typing import Any

import pytest

import triptych_models
from triptych_ray.options import ReplicaOptions
from triptych_serving.errors import SecurityError
from triptych_serving.repository import placement
from triptych_serving.repository.model_manager import ModelControl
from triptych_serving.runtime.device import CPU, Device


def test_defaults() -> None:
    options = ReplicaOptions.of({}).server_options(cpus=2.0)
    assert options.repository.root == triptych_models.REPOSITORY
    assert options.repository.control is ModelControl.NONE
    assert options.decoders.precision is None
    assert not options.reflection
    assert options.observability.metrics_port is None


@pytest.mark.parametrize(("cpus", "workers"), [(0.5, 1), (1.0, 1), (4.0, 4)])
def test_workers_are_the_cpus_that_ray_assigns(cpus: float, workers: int) -> None:
    assert ReplicaOptions().server_options(cpus).decoders.engine.workers == workers
    assert ReplicaOptions(workers=3).server_options(cpus).decoders.engine.workers == 3


def test_arguments() -> None:
    arguments = {"models": "/models", "model": "en-de", "precision": "int8", "poll_interval_secs": 5, "response_cache_bytes": 7}
    options = ReplicaOptions.of(arguments).server_options(1.0)
    assert (options.repository.root, options.repository.model) == (Path("/models"), "en-de")
    assert (options.repository.control, options.repository.poll_seconds) == (ModelControl.POLL, 5)
    assert options.decoders.precision == "int8"
    assert options.repeats.cache_bytes == 7


BAD: list[tuple[dict[str, Any], str]] = [
    ({"model_path": "/models"}, "unknown arguments: model_path; there are: models, "),
    ({"slots": -1}, "slots: -1 is not an integer of at least 0"),
    ({"workers": "two"}, "workers: 'two' is not an integer of at least 0"),
    ({"workers": 1.5}, "workers: 1.5 is not an integer of at least 0"),
    ({"workers": True}, "workers: True is not an integer"),
    ({"gpu_memory_limit": 0.5}, "gpu_memory_limit: 0.5 is not a string; write numbers in quotes"),
    ({"models": None}, "models: None is not a string"),
    ({"poll_interval_secs": -1}, "poll_interval_secs: -1 is not"),
]


@pytest.mark.parametrize(("arguments", "fault"), BAD)
def test_a_wrong_argument_is_named(arguments: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        ReplicaOptions.of(arguments)


def test_keys_need_tls() -> None:
    with pytest.raises(SecurityError):
        ReplicaOptions.of({"api_keys": "keys"})
    assert ReplicaOptions.of({"api_keys": "keys", "allow_plaintext_keys": True}).security.api_keys == Path("keys")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Devices that are looked up, on a machine with one GPU."""
    asked: list[str] = []

    def parse(text: str) -> tuple[Device, ...]:
        asked.append(text)
        return (CPU,) if text == "cpu" else (Device("cuda"),)

    monkeypatch.setattr(placement, "parse_devices", parse)
    return asked


@pytest.mark.parametrize(
    ("device", "gpus", "looked_for"),
    [("auto", 0.0, "cpu"), ("auto", 1.0, "auto"), ("auto", 0.5, "auto"), ("cuda", 0.0, "cuda"), ("cpu", 1.0, "cpu")],
)
def test_a_replica_uses_only_the_gpu_that_ray_assigns(asked: list[str], device: str, gpus: float, looked_for: str) -> None:
    hardware = ReplicaOptions(device=device).server_options(1.0, gpus).hardware
    assert asked == [looked_for]
    assert hardware.gpus == (() if looked_for == "cpu" else (Device("cuda"),))
    assert hardware.needed is (device == "cuda")


def test_slots(asked: list[str]) -> None:
    own, given = (ReplicaOptions(slots=slots).server_options(1.0, 1.0) for slots in (0, 7))
    assert (own.decoders.engine.slots, own.hardware.slots) == (32, 256)
    assert (given.decoders.engine.slots, given.hardware.slots) == (7, 7)
