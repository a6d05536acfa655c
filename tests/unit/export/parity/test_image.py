"""Generated images for parity checks."""

import numpy as np

from triptych_export.parity.image import generate_images


def test_images_are_reproducible_and_different() -> None:
    images, again = (generate_images(4, 24, 31) for _ in range(2))
    assert [image.shape for image in images] == [(24, 31, 3)] * 4
    assert {image.dtype for image in images} == {np.dtype(np.uint8)}
    np.testing.assert_array_equal(images, again)
    assert all((images[i] != images[k]).mean() > 0.9 for i in range(4) for k in range(i))


def test_images_range_from_smooth_to_noisy_and_use_most_values() -> None:
    images = np.stack(generate_images(8, 64, 64)).astype(float)
    roughness = np.abs(np.diff(images, axis=2)).mean((1, 2, 3))
    assert roughness[0] < 10
    assert roughness[-1] > 30
    assert images.min() < 20
    assert images.max() > 235
