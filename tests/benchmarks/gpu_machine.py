"""Where a measurement on a GPU was made: the GPU, its driver, processor, versions; what is not installed is said to be so."""

import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("onnxruntime", "onnxruntime-gpu", "ctranslate2", "torch", "triton", "transformers", "tokenizers", "grpcio")
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv,noheader")
PROVIDERS = "import onnxruntime as ort; print(ort.__version__, *ort.get_available_providers())"


def describe(device: str) -> dict[str, object]:
    """For the JSON file."""
    return {
        "device": device,
        "gpus": _output(NVIDIA_SMI),
        "processor": _processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "onnxruntime, as it is loaded": _output((sys.executable, "-c", PROVIDERS)),
        **{name: _version(name) for name in PACKAGES},
    }


def main() -> None:
    """Print it as JSON."""
    sys.stdout.write(json.dumps(describe("")) + "\n")


def _output(command: tuple[str, ...]) -> list[str]:
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


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
