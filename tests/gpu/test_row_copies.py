"""Copies of many rows within a cache are those of numpy, with one kernel on a GPU."""

from collections.abc import Sequence

import numpy as np
import pytest

from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory import Memory, RowCopy
from triptych_serving.runtime.memory.row_copies import row_copy_kernel

pytestmark = pytest.mark.gpu

ROWS = 700
POSITIONS = 40


def random_copies(rng: np.random.Generator, count: int) -> Sequence[RowCopy]:
    """Between different rows, of any range of positions, even none."""
    rows = rng.permutation(ROWS)[: 2 * count].reshape(count, 2)
    ranges = np.sort(rng.integers(0, POSITIONS + 1, (count, 2)), axis=1)
    return [(*pair, *part) for pair, part in zip(rows.tolist(), ranges.tolist(), strict=True)]


@pytest.mark.parametrize("shape", [(12, ROWS, 8, POSITIONS, 64), (4, ROWS, 1, POSITIONS, 512), (2, ROWS, 3, POSITIONS, 8)])
def test_rows_are_copied(memory: Memory, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    host = rng.standard_normal(shape).astype(np.float16)
    array, read = memory.zeros(shape, np.float16), memory.staging(shape, np.float16)
    memory.upload(host, array)
    for count in (1, 5, ROWS // 2):
        copies = random_copies(rng, count)
        memory.copy_rows(array, copies)
        for source, target, first, stop in copies:
            host[:, target, :, first:stop] = host[:, source, :, first:stop]
        memory.download(array, read)
        memory.wait()
        np.testing.assert_array_equal(read, host)


def test_the_kernel_is_there(memory: Memory, gpu: Device) -> None:
    """Without it, rows are copied one by one."""
    assert memory.device == gpu
    assert row_copy_kernel(gpu.index) is not None
