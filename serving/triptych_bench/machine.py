"""Where the load came from."""

import os
import platform
from pathlib import Path

import grpc

from triptych.version import __version__


def describe() -> dict[str, str]:
    """Of the client's machine: processor, CPUs that this process may use, system, versions."""
    return {
        "processor": _processor(),
        "cpus": str(_cpus()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "grpcio": grpc.__version__,
    }


def tool() -> str:
    """Name and version of this package."""
    return f"triptych {__version__}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
