"""Views of a device's memory."""

from collections.abc import Callable

import numpy as np
import pytest

from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory import DeviceArray, device_array, host_view

ARRAY = DeviceArray(1000, (4, 3, 5), np.dtype(np.float16), Device("cuda", 1))


def test_a_part_starts_at_its_row() -> None:
    assert ARRAY.first(2) == DeviceArray(1000, (2, 3, 5), np.dtype(np.float16), Device("cuda", 1))
    assert (ARRAY.part(1, 3).address, ARRAY.part(1, 3).shape) == (1000 + 30, (2, 3, 5))
    assert (ARRAY.at(2).address, ARRAY.at(2).shape) == (1000 + 60, (3, 5))
    assert (ARRAY.at(2, 1).address, ARRAY.at(2, 1).shape) == (1000 + 70, (5,))
    assert (ARRAY.at(3, 2, 4).address, ARRAY.at(3, 2, 4).shape) == (1000 + 118, ())


def test_views_equal_numpy_views() -> None:
    host = np.arange(4 * 3 * 5, dtype=np.int32).reshape(4, 3, 5)
    array = device_array(host)
    for view, expected in (
        (array.part(1, 3), host[1:3]),
        (array.at(2, 1), host[2, 1]),
        (array.at(1).first(2), host[1, :2]),
        (array.at(3, 2, 4), host[3, 2, 4]),
        (array.part(2, 4).shaped((5, 6)), host[2:].reshape(5, 6)),
        (array.shaped((2, 3)), host.reshape(-1)[:6].reshape(2, 3)),
        (array.part(4, 4), host[4:]),
    ):
        np.testing.assert_array_equal(host_view(view), expected)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        *[(lambda a=a, b=b: ARRAY.part(a, b), f"{a}:{b} is not within the 4") for a, b in ((-1, 2), (2, 1), (0, 5))],
        *[(lambda at=at: ARRAY.at(*at), "in an array of shape") for at in ((4,), (0, -1), (0, 0, 0, 0))],
        (lambda: ARRAY.shaped((61,)), r"\(61,\) takes 122 bytes, there are 120"),
        (lambda: device_array(np.zeros((3, 4))[:, :2]), "not C-contiguous"),
    ],
)
def test_views_out_of_bounds_are_rejected(view: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        view()
