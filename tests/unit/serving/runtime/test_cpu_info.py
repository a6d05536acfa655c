"""CPUs that a container leaves, and integer products that overflow."""

import os
import platform
from pathlib import Path

import pytest

from triptych_serving.runtime.cpu_info import int8_saturates, usable_cpus

HOST_CPUS = 16


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(HOST_CPUS)), raising=False)


def write(cgroup: Path, **files: str) -> Path:
    for name, content in files.items():
        path = cgroup / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return cgroup


@pytest.mark.parametrize(
    ("content", "cpus"),
    [
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("10000 100000\n", 1),
        ("3200000 100000\n", HOST_CPUS),
        ("max 100000\n", HOST_CPUS),
        ("", HOST_CPUS),
        ("nonsense\n", HOST_CPUS),
    ],
)
def test_cgroup_v2(tmp_path: Path, content: str, cpus: int) -> None:
    assert usable_cpus(write(tmp_path, cpuDOTmax=content)) == cpus


@pytest.mark.parametrize(("quota", "cpus"), [("250000\n", 3), ("50000\n", 1), ("-1\n", HOST_CPUS), ("", HOST_CPUS)])
def test_cgroup_v1(tmp_path: Path, quota: str, cpus: int) -> None:
    assert usable_cpus(write(tmp_path, cpu__cpuDOTcfs_quota_us=quota, cpu__cpuDOTcfs_period_us="100000\n")) == cpus


def test_without_an_affinity_mask_the_hosts_cpus_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert usable_cpus(tmp_path) == 3


@pytest.mark.parametrize(
    ("machine", "cpuinfo", "saturates"),
    [
        ("x86_64", "flags\t\t: fpu avx2\n", True),
        ("x86_64", "flags\t\t: fpu avx2 avx512_vnni\n", False),
        ("AMD64", "flags\t\t: fpu avx_vnni\n", False),
        ("x86_64", "processor\t: 0\n", True),
        ("x86_64", None, True),
        ("aarch64", None, False),
    ],
)
def test_int8_saturates_on_x86_without_vnni(
    monkeypatch: pytest.MonkeyPatch, machine: str, cpuinfo: str | None, saturates: bool
) -> None:
    def read_text(path: Path) -> str:
        assert path == Path("/proc/cpuinfo")
        if cpuinfo is None:
            raise FileNotFoundError
        return cpuinfo

    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(Path, "read_text", read_text)
    assert int8_saturates.__wrapped__() is saturates
