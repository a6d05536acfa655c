"""Facts of the machine: the number of usable CPUs, the memory, and how integers are multiplied."""

import math
import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath

CGROUP = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")  # the path of this process's group
VNNI = ("amx_int8", "avx512_vnni", "avx_vnni_int8", "avx_vnni")
EXTENSIONS = (*VNNI, "i8mm", "asimddp", "avx2")  # for products of bytes, the best first, as in /proc/cpuinfo


def usable_cpus(cgroup: Path = CGROUP, own: Path = OWN_CGROUP) -> int:
    """Return the number of CPUs that affinity mask and quotas of cgroups leave to this process, at least 1.

    The host's core count is meaningless inside a container: https://github.com/microsoft/onnxruntime/issues/29510
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    groups = _groups(cgroup, own, "cpu")
    quotas = [quota for group in groups if (quota := _quota_v2(group) or _quota_v1(group))]
    return max(1, min(affinity, *map(math.ceil, quotas))) if quotas else affinity


def usable_memory(cgroup: Path = CGROUP, own: Path = OWN_CGROUP) -> int:
    """Return the bytes of memory of the machine, or of the container or service if it has fewer."""
    usable = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for group in _groups(cgroup, own, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):  # no such group, or "max"
                usable = min(usable, int((group / name).read_text()))
    return usable


def _groups(cgroup: Path, own: Path, controller: str) -> list[Path]:
    """Return the folders of this process's group and of those around it, in both versions of cgroups.

    A container sees its own group as the root; a service of systemd has one further down.
    """
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:  # another system than Linux, or a sandbox that hides it
        lines = []
    paths = {name: PurePosixPath(path.lstrip("/")) for _, names, path in lines for name in names.split(",")}
    roots = (cgroup, paths.get("")), (cgroup / controller, paths.get(controller))
    return [root / group for root, path in roots for group in ((path, *path.parents) if path else ("",))]


def _quota_v2(group: Path) -> float | None:
    try:
        quota, period = (group / "cpu.max").read_text().split()[:2]
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _quota_v1(group: Path) -> float | None:
    try:
        quota = int((group / "cpu.cfs_quota_us").read_text())
        period = int((group / "cpu.cfs_period_us").read_text())
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
