"""`--device` and `--gpu-memory-limit`."""

from functools import partial
from pathlib import Path

import pytest

from triptych_serving.repository import placement
from triptych_serving.repository.placement import CPU_ALONE, Hardware
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.device_selection import parse_devices
from triptych_serving.runtime.memory.cudart import INSTALL
from triptych_serving.server import ServerOptions

from ....fixtures.toy import ENCODER_MODELS, MODELS, SOURCE, TARGET
from ..conftest import Run

GPUS = Device("cuda"), Device("cuda", 1)
NO_RUNTIME = f"--device: the installed onnxruntime has no CUDA provider: {INSTALL}"


@pytest.fixture(autouse=True)
def _without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide CUDA, whatever runtime these tests have."""
    monkeypatch.setattr(placement, "parse_devices", partial(parse_devices, runtime_has_cuda=lambda: False))
    monkeypatch.setattr(placement, "has_cuda", lambda: False)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, _without_cuda: None) -> None:
    """Simulate a machine with two GPUs."""
    monkeypatch.setattr(placement, "parse_devices", lambda text: (CPU,) if text == "cpu" else GPUS)


def test_a_server_uses_gpus_by_default(run: Run, served: list[ServerOptions], gpus: None) -> None:
    assert run("serve").code == 0
    assert served[0].hardware == Hardware(GPUS)
    assert served[0].decoders.engine.slots == 32


def test_without_gpus_a_server_uses_the_cpu(run: Run, served: list[ServerOptions]) -> None:
    assert run("serve").success == ""
    assert served[0].hardware == CPU_ALONE


def test_flags_and_variables_of_a_server(
    run: Run, served: list[ServerOptions], gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("serve", "--device", "cuda:0,cuda:1", "--gpu-memory-limit", "1.5GiB", "--slots", "17").code == 0
    monkeypatch.setenv("TRIPTYCH_DEVICE", "cpu")
    monkeypatch.setenv("TRIPTYCH_GPU_MEMORY_LIMIT", "0.5")
    assert run("serve").code == 0
    both, cpu = (settings.hardware for settings in served)
    assert (both.gpus, both.needed, both.slots) == (GPUS, True, 17)
    assert both.memory_limit is not None
    assert both.memory_limit.bytes == 3 << 29
    assert served[0].decoders.engine.slots == 17  # for models on the CPU
    assert cpu.gpus == ()
    assert cpu.memory_limit is not None
    assert cpu.memory_limit.fraction == 0.5


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (["--device", "cuda"], NO_RUNTIME),
        (["--device", "gpu"], "--device: 'gpu' is not a device: cpu, cuda, cuda:N"),
        (["--gpu-memory-limit", "8 apples"], "--gpu-memory-limit: '8 apples' is neither a number of bytes such as 8GiB"),
    ],
)
def test_unavailable_devices_are_errors(run: Run, served: list[ServerOptions], flags: list[str], fault: str) -> None:
    result = run("serve", *flags)
    assert result.code == 1
    assert result.error.startswith(fault)
    assert not served


TRANSLATE = ["translate", "score", "translate-docs", "evaluate translation", "bench translate"]
ENCODE = ["fill", "embed", "classify", "classify-text", "classify-tokens", "answer"]


@pytest.mark.parametrize("command", ["serve", *TRANSLATE, *ENCODE, "evaluate fill-mask", "evaluate image-classification"])
def test_every_command_with_an_engine_has_the_flags(run: Run, command: str) -> None:
    shown = run(*command.split(), "--help-all" if command == "serve" else "--help").success
    assert "TRIPTYCH_DEVICE" in shown
    assert "TRIPTYCH_GPU_MEMORY_LIMIT" in shown


def test_an_engine_in_this_process_runs_on_the_chosen_device(run: Run, tmp_path: Path) -> None:
    assert run("translate", "--models", MODELS, "--device", "cpu", SOURCE).success == f"{TARGET}\n"
    text = tmp_path / "a.txt"
    text.write_text(SOURCE, encoding="utf-8")
    for command in (
        ("translate", "--models", MODELS, SOURCE),
        ("fill", "--models", ENCODER_MODELS, "[MASK]"),
        ("translate-docs", text, "--models", MODELS, "--out", tmp_path / "out"),
    ):
        assert run(*command, "--device", "cuda").error == NO_RUNTIME


def test_a_model_without_cuda_graphs(run: Run, gpus: None) -> None:
    toy = ("translate", "--models", MODELS, SOURCE)
    has = "it has no graphs for CUDA, only fp32, int8; export it with --precision fp16"
    assert run(*toy, "--device", "cuda").error == f"{MODELS / 'toy' / '1'}: {has}"
    error = run(*toy, "--device", "cuda", "--precision", "int8").error
    assert error == f"{MODELS / 'toy' / '1'}: precision int8 runs on the CPU only"
    assert run(*toy).success == f"{TARGET}\n"


def test_a_server_decides_for_itself(run: Run) -> None:
    for flag, value in (("--device", "cuda"), ("--gpu-memory-limit", "0.5")):
        result = run("translate", "--server", "localhost:1", flag, value, SOURCE)
        assert result.code == 2
        assert result.error.startswith(f"{flag} is for an engine in this process")
