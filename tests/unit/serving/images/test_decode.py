"""Pixels: equal to Pillow's own, upright, in RGB, whatever the file."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps
from PIL.Image import Resampling

from triptych_serving.bundle.manifest.image import INTERPOLATIONS, ImageSpec
from triptych_serving.errors import InvalidInputError
from triptych_serving.images.decode import decode_image

from ..image_files import opened, oriented, picture, saved

SPEC = ImageSpec(height=24, width=40)
SQUARE = ImageSpec(height=32, width=32)
ORIENTATIONS = range(1, 9)


def centre(spec: ImageSpec, resize_size: int) -> ImageSpec:
    return ImageSpec(spec.height, spec.width, "shortest-edge", resize_size, spec.interpolation)


def as_sent(*size: int) -> ImageSpec:
    """A target of the image's own size: pixels come through unchanged."""
    return ImageSpec(height=size[1], width=size[0])


def plain(image: Image.Image, spec: ImageSpec) -> NDArray[np.uint8]:
    """Pillow's resize of the whole image."""
    return np.asarray(image.convert("RGB").resize((spec.width, spec.height), Resampling[spec.interpolation.upper()]))


def difference(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> float:
    return float(np.abs(left.astype(int) - right).mean())


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_a_stretch_equals_pillows_resize(kind: str, interpolation: str) -> None:
    data = saved(picture(90, 70), kind)
    spec = ImageSpec(height=24, width=40, interpolation=interpolation)
    decoded = decode_image(data, spec)
    np.testing.assert_array_equal(decoded.pixels, plain(opened(data), spec))
    assert (decoded.width, decoded.height) == (90, 70)
    assert decoded.pixels.dtype == np.uint8
    assert decoded.pixels.shape == (24, 40, 3)
    assert decoded.pixels.flags.c_contiguous


EDGE = ImageSpec(height=32, width=32, resize="shortest-edge", resize_size=36, interpolation="bicubic")
STRETCH = ImageSpec(height=32, width=32, interpolation="bicubic", resize_height=37, resize_width=45)


@pytest.mark.parametrize(
    ("spec", "size", "resized", "corner"),
    [
        (EDGE, (90, 70), (46, 36), (7, 2)),  # 46.29 is rounded down
        (EDGE, (70, 90), (36, 46), (2, 7)),
        (EDGE, (71, 90), (36, 45), (2, 6)),  # an odd pixel is left over
        (EDGE, (32, 32), (36, 36), (2, 2)),
        (EDGE, (5, 200), (36, 1440), (2, 704)),
        *[(STRETCH, size, (45, 37), (6, 2)) for size in ((90, 70), (31, 64), (5, 200))],
    ],
)
def test_a_centre_crop_follows_the_resize(
    spec: ImageSpec, size: tuple[int, int], resized: tuple[int, int], corner: tuple[int, int]
) -> None:
    image = picture(*size)
    whole = np.asarray(image.resize(resized, Resampling.BICUBIC))
    left, top = corner
    np.testing.assert_array_equal(decode_image(saved(image), spec).pixels, whole[top : top + 32, left : left + 32])


@pytest.mark.parametrize(("kind", "spec"), [("JPEG", SPEC), ("PNG", centre(SQUARE, 36)), ("WEBP", SPEC)])
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_images_are_turned_upright(kind: str, orientation: int, spec: ImageSpec) -> None:
    data = saved(picture(90, 70), kind, exif=oriented(orientation))
    upright = ImageOps.exif_transpose(opened(data))
    decoded = decode_image(data, spec)
    assert (decoded.width, decoded.height) == upright.size == ((90, 70) if orientation < 5 else (70, 90))
    np.testing.assert_array_equal(decoded.pixels, decode_image(saved(upright.convert("RGB")), spec).pixels)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("exif", [b"Exif\0\0no TIFF", b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", oriented(9), oriented(0)])
def test_unreadable_orientation_means_upright(exif: bytes | Image.Exif) -> None:
    data = saved(picture(90, 70), "JPEG", exif=exif)
    np.testing.assert_array_equal(decode_image(data, SPEC).pixels, plain(opened(data), SPEC))


@pytest.mark.parametrize("interpolation", ["bilinear", "hamming", "bicubic", "lanczos"])
@pytest.mark.parametrize(("size", "orientation"), [((352, 290), 1), ((353, 291), 6), ((521, 779), 7)])
def test_a_large_jpeg_is_decoded_at_a_reduced_size(interpolation: str, size: tuple[int, int], orientation: int) -> None:
    data = saved(picture(*size), "JPEG", quality=92, exif=oriented(orientation))
    spec = ImageSpec(height=48, width=56, interpolation=interpolation)
    whole = plain(ImageOps.exif_transpose(opened(data)), spec)
    decoded = decode_image(data, spec)
    assert 0 < difference(decoded.pixels, whole) < 0.8
    assert sorted((decoded.width, decoded.height)) == sorted(size)


@pytest.mark.parametrize(
    ("size", "spec"),
    [
        ((640, 480), ImageSpec(height=48, width=56, interpolation="nearest")),
        ((640, 480), ImageSpec(height=48, width=56, interpolation="box")),
        ((199, 600), ImageSpec(height=50, width=50)),  # below four times the result
        ((600, 199), ImageSpec(height=50, width=50)),
    ],
)
def test_a_jpeg_is_decoded_whole_for_sensitive_filters_and_if_small(size: tuple[int, int], spec: ImageSpec) -> None:
    data = saved(picture(*size), "JPEG")
    np.testing.assert_array_equal(decode_image(data, spec).pixels, plain(opened(data), spec))


def transparent() -> Image.Image:
    image = picture(90, 70).convert("RGBA")
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    return image


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_alpha_is_dropped_and_an_animation_yields_its_first_frame(kind: str) -> None:
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    data = saved(transparent(), kind, **options)
    assert opened(data).mode == "RGBA"
    np.testing.assert_array_equal(decode_image(data, SPEC).pixels, plain(transparent(), SPEC))
    frames = [picture(90, 70, seed) for seed in range(3)]
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:], duration=50, **options)
    assert opened(data).n_frames == 3  # type: ignore[attr-defined]
    np.testing.assert_array_equal(decode_image(data, SPEC).pixels, plain(frames[0], SPEC))


PNG_MODES: dict[str, tuple[Callable[[], Image.Image], dict[str, Any]]] = {
    "1": (lambda: picture(90, 70).convert("1"), {}),
    "L": (lambda: picture(90, 70).convert("L"), {}),
    "LA": (lambda: transparent().convert("LA"), {}),
    "P": (lambda: picture(90, 70).quantize(200), {}),
    "P, 4 colours": (lambda: picture(90, 70).quantize(4), {"bits": 2}),
    "P, one transparent": (lambda: picture(90, 70).quantize(16), {"transparency": 3}),
    "P, alpha": (lambda: picture(90, 70).quantize(16), {"transparency": bytes(range(0, 256, 16))}),
    "L, one transparent": (lambda: picture(90, 70).convert("L"), {"transparency": 100}),
    "RGB, one transparent": (lambda: picture(90, 70), {"transparency": (1, 2, 3)}),
}


@pytest.mark.parametrize("name", PNG_MODES)
def test_every_mode_of_png_becomes_rgb(name: str) -> None:
    make, options = PNG_MODES[name]
    data = saved(make(), **options)
    assert opened(data).mode == name.split(",", maxsplit=1)[0]
    assert ("transparency" in opened(data).info) == ("transparency" in options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decoded = decode_image(data, SPEC)
    np.testing.assert_array_equal(decoded.pixels, plain(make().convert("RGBA"), SPEC))


@pytest.mark.parametrize(("mode", "tolerance"), [("L", 0), ("RGB", 0), ("CMYK", 3)])
def test_every_mode_of_jpeg_becomes_rgb(mode: str, tolerance: float) -> None:
    data = saved(picture(90, 70).convert(mode), "JPEG", quality=98)
    assert opened(data).mode == mode
    pixels = decode_image(data, SPEC).pixels
    np.testing.assert_array_equal(pixels, plain(opened(data), SPEC))
    grey = picture(90, 70).convert("L")
    assert difference(pixels, plain(grey if mode == "L" else picture(90, 70), SPEC)) < 3


def test_adobe_ycck_is_cmyk() -> None:
    """Make a file as Photoshop writes it: inverted inks as YCC, by relabelling the planes of a CMYK file."""
    colour = (200, 120, 40)
    inks = tuple(255 - value for value in colour)
    y, cb, cr = Image.new("RGB", (1, 1), inks).convert("YCbCr").getpixel((0, 0))  # type: ignore[misc]
    stored = Image.new("CMYK", (16, 16), (255 - y, 255 - cb, 255 - cr, 0))  # Pillow inverts what it writes
    data = saved(stored, "JPEG", quality=100)
    adobe = data.index(b"Adobe")
    ycck = data[: adobe + 11] + b"\2" + data[adobe + 12 :]
    assert opened(ycck).info["adobe_transform"] == 2
    assert opened(ycck).mode == "CMYK"
    assert np.abs(decode_image(ycck, as_sent(16, 16)).pixels.astype(int) - colour).max() <= 2


def test_16_bit_greyscale_keeps_its_high_byte() -> None:
    ramp = np.linspace(0, 65535, 256 * 8).astype(np.uint16).reshape(8, 256)
    data = saved(Image.fromarray(ramp))
    assert opened(data).mode.startswith("I;16")
    pixels = decode_image(data, as_sent(256, 8)).pixels
    np.testing.assert_array_equal(pixels, np.repeat((ramp >> 8)[..., None], 3, axis=-1))
    assert [pixels.min(), pixels.max()] == [0, 255]


@pytest.mark.parametrize(
    ("size", "edge", "resized", "limit"),
    [
        ((1, 60_000), 32, "32 x 1920000 it has 61440000", 4_000_000),
        ((300, 30_300), 300, "300 x 30300 it has 9090000", 9_000_000),
        ((500, 32_001), 1_000, "1000 x 64002 it has 64002000", 64_000_000),
    ],
    ids=["at least", "aspect ratio", "any image"],
)
def test_a_narrow_image_too_large_after_the_resize_is_rejected(
    size: tuple[int, int], edge: int, resized: str, limit: int
) -> None:
    data = saved(Image.new("1", size))
    decode_image(data, ImageSpec(height=edge, width=edge))  # stretched
    with pytest.raises(InvalidInputError) as caught:
        decode_image(data, centre(ImageSpec(edge, edge), edge), "images[4]")
    problem = f"the image is {size[0]} x {size[1]}, too narrow: resized to {resized} pixels, the limit is {limit} pixels"
    assert str(caught.value) == f"images[4]: {problem}"


def test_a_narrow_image_may_have_as_many_pixels_as_the_limit_after_the_resize() -> None:
    assert decode_image(saved(Image.new("L", (2, 7812))), centre(SQUARE, 32)).height == 7812  # 32 x 124,992
