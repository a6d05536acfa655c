"""Arrays that share a block of memory."""

import sys

import numpy as np
import pytest

from triptych_serving.runtime.arrays import ALIGNMENT, ArrayLayout, ArraySpec, sparse_zeros
from triptych_serving.runtime.memory import HostMemory, host_view

from ....fixtures.memory import resident


def test_host_and_device_have_the_same_layout() -> None:
    layout = ArrayLayout(
        {"a": ArraySpec.of((3, 2), np.int32), "none": ArraySpec.of((0, 5), np.float32), "b": ArraySpec.of((5,), np.int64)}
    )
    memory = HostMemory()
    host, device = memory.staging((layout.nbytes + 8,), np.uint8), memory.zeros((layout.nbytes,), np.uint8)
    views = layout.views(host)
    views["a"][...] = [[1, 2], [3, 4], [5, 6]]
    views["b"][...] = np.arange(5) - 2
    memory.upload(host[: layout.nbytes], device)
    arrays = layout.arrays(device)
    assert {name: (array.shape, array.dtype) for name, array in arrays.items()} == {
        "a": ((3, 2), np.int32),
        "none": ((0, 5), np.float32),
        "b": ((5,), np.int64),
    }
    for name in views:
        np.testing.assert_array_equal(host_view(arrays[name]), views[name])
    assert [(array.address - device.address) % ALIGNMENT for array in arrays.values()] == [0, 0, 0]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_of_sparse_zeros_is_used_page_by_page() -> None:
    array = sparse_zeros((64, 1 << 20), np.uint8)
    before = resident()
    array[:, 0] = 1
    assert resident() - before < 8 << 20  # huge pages would use all 64 MiB
    assert array.sum() == 64
