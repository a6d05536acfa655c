"""`--device` and `--gpu-memory-limit`: where they belong, what they become, what is refused."""

from functools import partial
from pathlib import Path

import pytest

from triptych_cli.main import COMMANDS
from triptych_serving.repository import placement
from triptych_serving.repository.placement import CPU_ALONE, Hardware
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.device_selection import parse_devices
from triptych_serving.server import ServerOptions

from ....fixtures.toy import HERE, MODELS, SOURCE, TARGET
from ..conftest import Run

ENCODERS = HERE / "encoder_models"

GPUS = Device("cuda"), Device("cuda", 1)
NO_RUNTIME = '--device: the installed onnxruntime has no CUDA provider: pip uninstall onnxruntime; pip install "triptych[cuda]"'


@pytest.fixture(autouse=True)
def _without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runtime these tests have."""
    monkeypatch.setattr(placement, "parse_devices", partial(parse_devices, runtime_has_cuda=lambda: False))
    monkeypatch.setattr(placement, "has_cuda", lambda: False)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, _without_cuda: None) -> None:
    """A machine that has two."""
    monkeypatch.setattr(placement, "parse_devices", lambda text: (CPU,) if text == "cpu" else GPUS)


def test_by_itself_a_server_looks_for_gpus(run: Run, served: list[ServerOptions], gpus: None) -> None:
    assert run("serve").code == 0
    assert served[0].hardware == Hardware(GPUS)
    assert served[0].translator.engine.slots == 32


def test_without_gpus_it_is_as_if_there_were_no_such_flag(run: Run, served: list[ServerOptions]) -> None:
    result = run("serve")
    assert (result.code, result.err) == (0, "")
    assert served[0].hardware == CPU_ALONE


def test_flags_of_a_server(run: Run, served: list[ServerOptions], gpus: None) -> None:
    assert run("serve", "--device", "cuda:0,cuda:1", "--gpu-memory-limit", "1.5GiB", "--slots", "17").code == 0
    [settings] = served
    assert (settings.hardware.gpus, settings.hardware.needed, settings.hardware.slots) == (GPUS, True, 17)
    assert settings.hardware.memory_limit is not None
    assert settings.hardware.memory_limit.bytes == 3 << 29
    assert settings.translator.engine.slots == 17  # of models that the CPU runs


def test_variables_of_a_server(run: Run, served: list[ServerOptions], gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPTYCH_DEVICE", "cpu")
    monkeypatch.setenv("TRIPTYCH_GPU_MEMORY_LIMIT", "0.5")
    assert run("serve").code == 0
    assert served[0].hardware.gpus == ()
    assert served[0].hardware.memory_limit is not None
    assert served[0].hardware.memory_limit.fraction == 0.5


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (["--device", "cuda"], NO_RUNTIME),
        (["--device", "gpu"], "--device: 'gpu' is not a device: cpu, cuda, cuda:N"),
        (["--device", "cpu,cuda"], "--device: 'cpu,cuda' is not a device"),
        (["--gpu-memory-limit", "8 apples"], "--gpu-memory-limit: '8 apples' is neither a number of bytes such as 8GiB"),
        (["--gpu-memory-limit", "1.5"], "--gpu-memory-limit: '1.5' is neither"),
        (["--gpu-memory-limit", "0"], "--gpu-memory-limit: '0' is neither"),
    ],
)
def test_what_cannot_be_had_is_named(run: Run, served: list[ServerOptions], flags: list[str], fault: str) -> None:
    result = run("serve", *flags)
    assert result.code == 1
    assert result.error.startswith(fault)
    assert not served


TRANSLATES = ["translate", "score", "translate-docs", "evaluate translation", "bench translate"]
ENCODES = ["fill", "embed", "classify", "classify-text", "classify-tokens", "answer"]


@pytest.mark.parametrize("verb", ["serve", *TRANSLATES, *ENCODES, "evaluate fill-mask", "evaluate image-classification"])
def test_every_verb_with_an_engine_has_the_flags(run: Run, verb: str) -> None:
    assert verb.split(maxsplit=1)[0] in COMMANDS
    shown = run(*verb.split(), "--help").out
    for name in ("DEVICE", "GPU_MEMORY_LIMIT"):
        assert f"TRIPTYCH_{name}" in shown


def test_an_engine_in_this_process_runs_where_it_is_told(run: Run) -> None:
    result = run("translate", "--models", MODELS, "--device", "cpu", SOURCE)
    assert (result.code, result.out) == (0, f"{TARGET}\n")
    assert run("translate", "--models", MODELS, "--device", "cuda", SOURCE).error == NO_RUNTIME
    assert run("fill", "--models", ENCODERS, "--device", "cuda", "[MASK]").error == NO_RUNTIME


def test_documents_are_translated_where_it_is_told(run: Run, tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text(SOURCE, encoding="utf-8")
    arguments = "translate-docs", text, "--models", MODELS, "--out", tmp_path / "out", "--device"
    assert run(*arguments, "cuda").error == NO_RUNTIME
    assert run(*arguments, "cpu").code == 0
    assert (tmp_path / "out" / "a.txt").read_text(encoding="utf-8") == TARGET


def test_a_model_without_graphs_is_refused_where_a_gpu_was_asked_for(run: Run, gpus: None) -> None:
    has = "it has no graphs for CUDA, only fp32, int8; export it with --precision fp16"
    assert run("translate", "--models", MODELS, "--device", "cuda", SOURCE).error == f"{MODELS / 'toy' / '1'}: {has}"
    result = run("translate", "--models", MODELS, "--device", "cuda", "--precision", "int8", SOURCE)
    assert result.error == f"{MODELS / 'toy' / '1'}: precision int8 runs on the CPU only"


def test_by_itself_a_model_without_graphs_runs_on_the_cpu_of_a_machine_with_gpus(run: Run, gpus: None) -> None:
    result = run("translate", "--models", MODELS, SOURCE)
    assert (result.code, result.out) == (0, f"{TARGET}\n")


def test_a_server_decides_for_itself(run: Run) -> None:
    for flag, value in (("--device", "cuda"), ("--gpu-memory-limit", "0.5")):
        result = run("translate", "--server", "localhost:1", flag, value, SOURCE)
        assert result.code == 2
        assert result.error.startswith(f"{flag} is for an engine in this process")
