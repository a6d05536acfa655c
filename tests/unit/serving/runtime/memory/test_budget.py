"""Memory budgets and reservations."""

import threading
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from triptych_serving.errors import DeviceMemoryError
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory.budget import Budget, Budgets, MemoryLimit, parse_limit
from triptych_serving.runtime.memory.cudart import GpuMemory
from triptych_serving.runtime.memory.sizes import parse_bytes, show_bytes

GIB = 1 << 30
GPU = Device("cuda", 0)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("8GiB", MemoryLimit(bytes=8 * GIB)),
        ("1.5 GiB", MemoryLimit(bytes=3 * GIB // 2)),
        ("500MiB", MemoryLimit(bytes=500 << 20)),
        ("1073741824", MemoryLimit(bytes=GIB)),
        ("0.9", MemoryLimit(fraction=0.9)),
        ("1", MemoryLimit(fraction=1.0)),
    ],
)
def test_memory_limits_are_parsed(text: str, limit: MemoryLimit) -> None:
    assert parse_limit(text) == limit
    assert parse_limit(str(limit)) == limit


@pytest.mark.parametrize("text", ["", "8GB", "-1", "0", "1.5", "64", "0MiB", "many", "GiB", "nan", "inf", "1e40"])
def test_malformed_limits_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is neither a number of bytes such as 8GiB, at least 1MiB, nor a fraction such as"):
        parse_limit(text)


def test_a_reservation_lasts_until_it_is_released() -> None:
    budget = Budget(GPU, 10 * GIB)
    one = budget.reserve("model a version 1", {"weights": GIB, "caches": 5 * GIB})
    assert (one.bytes, one.what, dict(one.parts)) == (6 * GIB, "model a version 1", {"weights": GIB, "caches": 5 * GIB})
    budget.reserve("model b version 1", {"caches": 4 * GIB})
    assert budget.reserved_bytes == 10 * GIB
    one.release()
    one.release()
    assert budget.reserved_bytes == 4 * GIB
    budget.reserve("model c version 1", {"caches": 6 * GIB})


def test_a_reservation_that_does_not_fit_is_rejected_with_all_numbers() -> None:
    budget = Budget(GPU, 8 * GIB)
    budget.reserve("model b version 2", {"caches": 5 * GIB})
    with pytest.raises(DeviceMemoryError) as refused:
        budget.reserve("model a version 1", {"weights": GIB // 2, "caches": 4 * GIB}, lower="--slots (256)")
    assert str(refused.value) == (
        "model a version 1 takes 4.5 GiB of cuda:0 (weights 512 MiB, caches 4 GiB), 3 GiB are left of 8 GiB"
        " (model b version 2 5 GiB): lower --slots (256), or raise --gpu-memory-limit"
    )
    assert budget.reserved_bytes == 5 * GIB


def test_a_reservation_grows_or_stays_as_it_is() -> None:
    budget = Budget(GPU, 8 * GIB)
    first = budget.reserve("model a version 1", {"weights": 5 * GIB})
    with pytest.raises(DeviceMemoryError) as refused:
        budget.extend(first, {"outputs": 4 * GIB})
    assert str(refused.value) == (
        "model a version 1 takes 9 GiB of cuda:0 (weights 5 GiB, outputs 4 GiB), 8 GiB are left of 8 GiB: "
        "raise --gpu-memory-limit"
    )
    assert budget.reserved_bytes == 5 * GIB
    budget.extend(first, {"outputs": GIB})
    assert budget.reserved_bytes == 6 * GIB
    with pytest.raises(
        DeviceMemoryError, match=r"\(model a version 1 6 GiB\): serve fewer models, or raise --gpu-memory-limit"
    ):
        budget.reserve("model b version 1", {"weights": 3 * GIB}, lower="")


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (None, int(60 * GIB * 0.9)),
        (MemoryLimit(bytes=20 * GIB), 20 * GIB),
        (MemoryLimit(fraction=0.5), 40 * GIB),
        (MemoryLimit(bytes=70 * GIB), "75161927680 is 70 GiB"),
        (MemoryLimit(fraction=0.9), "0.9 is 72 GiB"),
    ],
)
def test_the_limit_depends_on_the_gpus_memory(limit: MemoryLimit | None, expected: int | str) -> None:
    look = Mock(return_value=GpuMemory(60 * GIB, 80 * GIB))
    budgets = Budgets(limit, look)
    assert not budgets.made
    if isinstance(expected, str):
        message = f"--gpu-memory-limit {expected} of cuda:0, of whose 80 GiB only 60 GiB are free"
        with pytest.raises(DeviceMemoryError, match=message):
            budgets.of(GPU)
        assert not budgets.made
        return
    assert budgets.of(GPU).limit_bytes == expected
    assert budgets.of(GPU) is budgets.of(GPU)
    look.assert_called_once_with(GPU)
    assert budgets.made == {GPU: budgets.of(GPU)}


def test_reading_budgets_does_not_wait_for_a_gpu() -> None:
    asked, answered = threading.Event(), threading.Event()

    def look(device: Device) -> GpuMemory:
        if device != GPU:
            asked.set()
            assert answered.wait(10)
        return GpuMemory(GIB, GIB)

    budgets = Budgets(None, look)
    budgets.of(GPU)
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(budgets.of, Device("cuda", 1))
        assert asked.wait(10)
        try:
            assert list(pool.submit(lambda: budgets.made).result(timeout=5)) == [GPU]
        finally:
            answered.set()
        slow.result()
    assert len(budgets.made) == 2


def test_concurrent_reservations_stay_within_the_limit() -> None:
    budget, barrier = Budget(GPU, 5), threading.Barrier(16)

    def reserve(number: int) -> bool:
        barrier.wait()
        try:
            budget.reserve(str(number), {"caches": 1})
        except DeviceMemoryError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(reserve, range(16))) == 5
    assert budget.reserved_bytes == 5


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5 MiB"), (141 << 30, "141 GiB"), (3 << 39, "1.5 TiB")],
)
def test_bytes_are_formatted(count: int, text: str) -> None:
    assert show_bytes(count) == text
    if count:
        assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "0", "0.5", "-3", "5 MB", "1 2", "infGiB"])
def test_malformed_sizes_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number of bytes such as 8GiB"):
        parse_bytes(text)
