"""CPUs that a container leaves, and integer products that overflow."""

import os
import platform
from pathlib import Path

import pytest

from triptych_serving.runtime.cpu_info import int8_saturates, integer_extension, usable_cpus, usable_memory

HOST_CPUS = 16


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(HOST_CPUS)), raising=False)


V1 = {"cpu/cpu.cfs_period_us": "100000\n"}


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "10000 100000\n"}, 1),
        ({"cpu.max": "3200000 100000\n"}, HOST_CPUS),
        ({"cpu.max": "max 100000\n"}, HOST_CPUS),
        ({"cpu.max": ""}, HOST_CPUS),
        ({"cpu.max": "nonsense\n"}, HOST_CPUS),
        (V1 | {"cpu/cpu.cfs_quota_us": "250000\n"}, 3),
        (V1 | {"cpu/cpu.cfs_quota_us": "50000\n"}, 1),
        (V1 | {"cpu/cpu.cfs_quota_us": "-1\n"}, HOST_CPUS),
        (V1 | {"cpu/cpu.cfs_quota_us": ""}, HOST_CPUS),
    ],
)
def test_cgroups_limit_the_cpus(tmp_path: Path, files: dict[str, str], cpus: int) -> None:
    (tmp_path / "cpu").mkdir()
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert usable_cpus(tmp_path) == cpus


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("limited", "cpus"), [("system.slice", 3), ("system.slice/triptych.service", 3), ("", 3), ("other", HOST_CPUS)]
)
def test_groups_of_services_limit_cpus_and_memory(tmp_path: Path, version: int, limited: str, cpus: int) -> None:
    """systemd has CPUQuota and MemoryMax of a service, and of the slices around it."""
    own = tmp_path / "own"
    own.write_text({1: "5:cpu,cpuacct:{0}\n4:memory:{0}\n", 2: "0::{0}\n"}[version].format("/system.slice/triptych.service"))
    cpu, memory = (tmp_path / part / limited for part in ("cpu", "memory")) if version == 1 else (tmp_path / limited,) * 2
    for folder in (cpu, memory, tmp_path / "system.slice/triptych.service"):
        folder.mkdir(parents=True, exist_ok=True)
    if version == 1:
        (cpu / "cpu.cfs_period_us").write_text("100000\n")
        (cpu / "cpu.cfs_quota_us").write_text("250000\n")
        (memory / "memory.limit_in_bytes").write_text(f"{1 << 20}\n")
    else:
        (tmp_path / "system.slice/triptych.service/cpu.max").write_text("max 100000\n")
        (cpu / "cpu.max").write_text("250000 100000\n")
        (memory / "memory.max").write_text(f"{1 << 20}\n")
    assert usable_cpus(tmp_path, own) == cpus
    assert (usable_memory(tmp_path, own) == 1 << 20) is (cpus == 3)


def test_without_an_affinity_mask_the_hosts_cpus_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert usable_cpus(tmp_path) == 3


@pytest.mark.parametrize(
    ("machine", "cpuinfo", "extension", "saturates"),
    [
        ("x86_64", "flags\t\t: fpu avx2\n", "avx2", True),
        ("x86_64", "flags\t\t: fpu avx_vnni avx2 avx512_vnni\n", "avx512_vnni", False),
        ("AMD64", "flags\t\t: fpu avx_vnni\n", "avx_vnni", False),
        ("x86_64", "processor\t: 0\n", "", True),
        ("x86_64", None, "", True),
        ("aarch64", "Features\t: fp asimd asimddp i8mm\n", "i8mm", False),
        ("aarch64", None, "", False),
    ],
)
def test_int8_is_chosen_by_the_processors_extensions(
    monkeypatch: pytest.MonkeyPatch, machine: str, cpuinfo: str | None, extension: str, saturates: bool
) -> None:
    def read_text(path: Path) -> str:
        assert path == Path("/proc/cpuinfo")
        if cpuinfo is None:
            raise FileNotFoundError
        return cpuinfo

    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(Path, "read_text", read_text)
    integer_extension.cache_clear()
    try:
        assert integer_extension() == extension
        assert int8_saturates() is saturates
    finally:
        integer_extension.cache_clear()
