"""Description of the machine: that of triptych_bench, and GPU, instruction sets and versions of the peers."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from triptych_bench.machine import describe as describe_host

PACKAGES = ("onnxruntime", "onnxruntime-gpu", "ctranslate2", "torch", "triton", "transformers", "tokenizers", "sacrebleu")
FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8")
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv,noheader")
PROVIDERS = "import onnxruntime as ort; print(ort.__version__, *ort.get_available_providers())"


def describe(device: str = "cpu") -> dict[str, object]:
    """Return processor, GPUs unless the device is the CPU, and versions."""
    gpu = {"device": device, "gpus": _output(*NVIDIA_SMI), "onnxruntime, as loaded": _output(sys.executable, "-c", PROVIDERS)}
    words = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    return {
        **describe_host(),
        "instructions": [flag for flag in FLAGS if flag in words],
        **(gpu if device != "cpu" else {}),
        **{package: _version(package) for package in PACKAGES},
    }


def _output(*command: str) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"{command[0]}: {error}"]
    return [line.strip() for line in (done.stdout or done.stderr).splitlines()[-8:]]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
