"""Where a measurement was made."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

from bootstrap import signature

PACKAGES = ("onnxruntime", "ctranslate2", "torch", "tokenizers", "grpcio", "sacrebleu")
FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8")


def describe() -> dict[str, object]:
    """Processor, CPUs in use, versions."""
    model, flags = _processor()
    return {
        "processor": model,
        "cpus": len(os.sched_getaffinity(0)),
        "instructions": [flag for flag in FLAGS if flag in flags],
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
        "bleu": signature(),
    }


def _processor() -> tuple[str, set[str]]:
    lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()]
    values = {name.strip(): value.strip() for name, _, value in lines}
    return values.get("model name", platform.machine()), set(values.get("flags", "").split())
