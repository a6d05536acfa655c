"""Behaviour of every memory: the CPU's, and a GPU's over a fake CUDA runtime."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory import CacheRegion, DeviceArray, HostMemory, Memory
from triptych_serving.runtime.memory.cuda import RING_BYTES, CudaMemory

from .fake_cuda import FakeCuda
from .strict_memory import StrictMemory

MAKERS: dict[str, Callable[[], Memory]] = {
    "host": HostMemory,
    "strict": StrictMemory,
    "cuda": lambda: CudaMemory(Device("cuda", 1), FakeCuda(2), lambda index: None),
}


@pytest.fixture(params=MAKERS, name="memory")
def each_memory(request: pytest.FixtureRequest) -> Iterator[Memory]:
    memory = MAKERS[request.param]()
    yield memory
    memory.close()


def read(memory: Memory, array: DeviceArray) -> NDArray[Any]:
    host = memory.staging(array.shape, array.dtype)
    memory.download(array, host)
    memory.mark().wait()
    return host.copy()


def put(memory: Memory, host: NDArray[Any]) -> DeviceArray:
    array = memory.zeros(host.shape, host.dtype)
    memory.upload(host, array)
    return array


def test_allocations_are_zeroed(memory: Memory) -> None:
    array = memory.zeros((3, 5), np.float16)
    assert (array.shape, array.dtype, array.device) == ((3, 5), np.float16, memory.device)
    assert not read(memory, array).any()
    assert not memory.staging((7,), np.int64).any()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64, np.int32, np.uint8, np.bool_])
def test_uploads_can_be_downloaded(memory: Memory, dtype: type) -> None:
    host = (np.arange(24).reshape(2, 3, 4) % 7).astype(dtype)
    np.testing.assert_array_equal(read(memory, put(memory, host)), host)


def test_an_array_may_be_changed_after_its_upload(memory: Memory) -> None:
    """Unless it is staging."""
    for size in (5, RING_BYTES):  # a small one, and one that does not fit the ring
        host = np.ones(size, np.uint8)
        array = put(memory, host)
        host[...] = 2
        assert (read(memory, array) == 1).all()
    staging = memory.staging((RING_BYTES,), np.uint8)
    staging[...] = 9
    assert (read(memory, put(memory, staging)) == 9).all()


def test_many_small_uploads_do_not_overwrite_each_other(memory: Memory) -> None:
    arrays = [memory.zeros((1 << 12,), np.int64) for _ in range(100)]  # 32 KiB each: three times round the ring
    for number, array in enumerate(arrays):
        memory.upload(np.full(array.shape, number), array)
    for number, array in enumerate(arrays):
        assert (read(memory, array) == number).all()


def test_work_is_done_in_order(memory: Memory) -> None:
    array = put(memory, np.ones((4, 3), np.int32))
    memory.fill(array, 0)
    memory.fill(array.part(1, 3), 255)
    memory.upload(np.array(5, np.int32), array.at(2, 1))
    assert read(memory, array).tolist() == [[0] * 3, [-1] * 3, [-1, 5, -1], [0] * 3]


def test_downloads_wait_for_nothing_else(memory: Memory) -> None:
    """Each download has the values of its time, and its mark stays passed."""
    array = memory.zeros((1,), np.int64)
    hosts, marks = [memory.staging((1,), np.int64) for _ in range(8)], []
    for number, host in enumerate(hosts):
        memory.upload(np.array([number]), array)
        memory.download(array, host)
        marks.append(memory.mark())
    for number, (host, mark) in enumerate(zip(hosts, marks, strict=True)):
        mark.wait()
        assert host.tolist() == [number]
        mark.wait()
    memory.wait()


@st.composite
def copies(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], list[int]]:
    """Two shapes, what is copied, and where from and to."""
    n, heads, width = (draw(st.integers(1, 3)) for _ in range(3))
    rows, positions = draw(st.integers(0, 3)), draw(st.integers(0, 4))
    starts = [draw(st.integers(0, 2)) for _ in range(4)]
    more = [draw(st.integers(0, 2)) for _ in range(4)]
    source, target = (
        (n, starts[at] + rows + more[at], heads, starts[at + 1] + positions + more[at + 1], width) for at in (0, 2)
    )
    return source, target, (rows, positions), starts


@pytest.mark.parametrize("maker", MAKERS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(copies(), st.sampled_from([np.float16, np.float32]))
def test_regions_are_copied_like_in_numpy(maker: str, drawn: Any, dtype: type) -> None:
    source_shape, target_shape, (rows, positions), (row, position, to_row, to_position) = drawn
    memory = MAKERS[maker]()
    rng = np.random.default_rng(1)
    source, target = rng.random(source_shape).astype(dtype), rng.random(target_shape).astype(dtype)
    on_device, to_device = put(memory, source), put(memory, target)
    memory.copy(
        CacheRegion(on_device, slice(row, row + rows), slice(position, position + positions)),
        CacheRegion(to_device, slice(to_row, to_row + rows), slice(to_position, to_position + positions)),
    )
    expected = target.copy()
    expected[:, to_row : to_row + rows, :, to_position : to_position + positions] = source[
        :, row : row + rows, :, position : position + positions
    ]
    np.testing.assert_array_equal(read(memory, to_device), expected)
    np.testing.assert_array_equal(read(memory, on_device), source)
    memory.close()


def test_many_rows_are_copied(memory: Memory) -> None:
    host = np.arange(2 * 6 * 2 * 4 * 8, dtype=np.float16).reshape(2, 6, 2, 4, 8)
    array = put(memory, host)
    memory.copy_rows(array, [(0, 3, 1, 3), (0, 5, 0, 4), (2, 1, 2, 2)])
    host[:, 3, :, 1:3], host[:, 5] = host[:, 0, :, 1:3], host[:, 0]
    np.testing.assert_array_equal(read(memory, array), host)


def test_mismatched_copies_are_rejected(memory: Memory) -> None:
    array, cache = memory.zeros((2, 3), np.int32), memory.zeros((1, 4, 2, 5, 2), np.float16)
    wide, elsewhere = memory.zeros((1, 4, 2, 5, 2), np.float32), DeviceArray(64, (2, 3), np.dtype(np.int32), Device("cuda", 7))
    box = CacheRegion(cache, slice(0, 2), slice(0, 3))
    for refused, message in (
        (lambda: memory.upload(np.zeros((2, 3)), array), r"float64 \(2, 3\) does not fit"),
        (lambda: memory.upload(np.zeros((3, 2), np.int32), array), r"int32 \(3, 2\) does not fit"),
        (lambda: memory.download(array, np.zeros((3, 2), np.int32).T), "not C-contiguous"),
        (lambda: memory.upload(np.zeros((2, 3), np.int32), elsewhere), "an array on cuda:7 is copied with the memory of"),
        (lambda: memory.copy(box, CacheRegion(cache, slice(2, 4), slice(0, 4))), "extents differ"),
        (lambda: memory.copy(box, CacheRegion(wide, slice(0, 2), slice(0, 3))), "types differ"),
        (lambda: memory.copy(box, CacheRegion(cache, slice(1, 3), slice(2, 5))), "overlap"),
        (lambda: CacheRegion(array, slice(0, 1), slice(0, 1)), r"it must be \[N, B, H, T, D\]"),
        (lambda: CacheRegion(cache, slice(0, 5), slice(0, 1)), "rows are slice"),
        (lambda: CacheRegion(cache, slice(0, 1), slice(0, 4, 2)), "positions are slice"),
        (lambda: CacheRegion(cache, slice(0, 1), slice(None)), "positions are slice"),
    ):
        with pytest.raises(ValueError, match=message):
            refused()
