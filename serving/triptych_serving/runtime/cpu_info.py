"""Facts of the machine: the number of usable CPUs, the memory, and how integers are multiplied."""

import math
import os
import platform
from functools import cache
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
VNNI = ("amx_int8", "avx512_vnni", "avx_vnni_int8", "avx_vnni")
EXTENSIONS = (*VNNI, "i8mm", "asimddp", "avx2")  # for products of bytes, the best first, as in /proc/cpuinfo


def usable_cpus(cgroup: Path = CGROUP) -> int:
    """Return the number of CPUs that affinity mask and container quota leave to this process, at least 1.

    The host's core count is meaningless inside a container: https://github.com/microsoft/onnxruntime/issues/29510
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota_v2(cgroup) or _quota_v1(cgroup) or affinity
    return max(1, min(affinity, math.ceil(quota)))


def usable_memory(cgroup: Path = CGROUP) -> int:
    """Return the bytes of memory of the machine, or of the container if it has fewer."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            return min(physical, int((cgroup / name).read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return physical


def _quota_v2(cgroup: Path) -> float | None:
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()[:2]
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _quota_v1(cgroup: Path) -> float | None:
    try:
        quota = int((cgroup / "cpu" / "cpu.cfs_quota_us").read_text())
        period = int((cgroup / "cpu" / "cpu.cfs_period_us").read_text())
        return quota / period if quota > 0 else None
    except (OSError, ValueError):
        return None


@cache
def integer_extension() -> str:
    """Return the processor's best extension for products of bytes; empty if it has none or is unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    flags = next((set(line.split()) for line in lines if line.startswith(("flags", "Features"))), set())
    return next((name for name in EXTENSIONS if name in flags), "")


def int8_saturates() -> bool:
    """Return True on x86 without VNNI, where products of unsigned and signed bytes overflow their 16-bit sums."""
    return platform.machine().lower() in ("x86_64", "amd64") and integer_extension() not in VNNI
