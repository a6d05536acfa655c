"""Files that decode_image rejects: other formats, damaged ones, and those that would cost too much."""

import re
import struct
import zlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from triptych_serving.bundle.manifest.image import ImageSpec
from triptych_serving.errors import InvalidInputError
from triptych_serving.images import image_file
from triptych_serving.images.decode import Decoded, decode_image

from ..image_files import oriented, picture, png, resized_jpeg_header, saved, webp_header

SPEC = ImageSpec(height=16, width=16)
FILES = {
    "JPEG": saved(picture(90, 70), "JPEG", exif=oriented(6)),
    "progressive JPEG": saved(picture(90, 70), "JPEG", progressive=True),
    "CMYK JPEG": saved(picture(50, 40).convert("CMYK"), "JPEG"),
    "PNG": saved(picture(40, 30), exif=oriented(3)),
    "palette PNG": saved(picture(40, 30).quantize(16), transparency=bytes(range(16))),
    "16-bit PNG": saved(Image.fromarray(np.arange(1200, dtype=np.uint16).reshape(30, 40) * 50)),
    "WEBP": saved(picture(90, 70), "WEBP", exif=oriented(5)),
    "lossless WEBP": saved(picture(40, 30).convert("RGBA"), "WEBP", lossless=True),
    "animated WEBP": saved(picture(40, 30), "WEBP", save_all=True, append_images=[picture(40, 30, 1)]),
}
FUZZ_PIXELS = 1_000_000  # a header that says more is refused before it costs anything


def limited(**limits: int) -> Any:
    return mock.patch.multiple(image_file, **limits)


def refusal(data: bytes) -> str:
    with pytest.raises(InvalidInputError) as caught:
        decode_image(data, SPEC, "images[2]")
    assert caught.value.field == "images[2]"
    assert "\n" not in caught.value.problem
    return caught.value.problem


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (saved(picture(9, 9).quantize(9), "GIF"), "a GIF image"),
        (saved(picture(9, 9), "BMP"), "a BMP image"),
        (saved(picture(9, 9), "TIFF"), "a TIFF image"),
        (saved(picture(9, 9), "ICO"), "an icon"),
        (b"MM\0*\0\0\0\x08", "a TIFF image"),
        (b"\0\0\0 ftypavif\0\0\0\0", "an AVIF image"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "a HEIC image"),
        (b"\0\0\0\x20ftypisom", "a video"),
        (b"\xff\x0a\xfa\x1f", "a JPEG XL image"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "a JPEG 2000 image"),
        (b"8BPS\0\1", "a Photoshop document"),
        (b"%PDF-1.7\n", "a PDF document"),
        (b"PK\x03\x04\x14\0", "a ZIP archive"),
        (b"\x1f\x8b\x08\0", "gzip-compressed"),
        (b'<?xml version="1.0"?>\n<!-- drawn -->\n<svg xmlns="http://www.w3.org/2000/svg"/>', "an SVG drawing"),
        (b"<svg/>", "an SVG drawing"),
        (b"\n <!doctype HTML><title>404</title>", "an HTML page"),
        (b"<html>", "an HTML page"),
        (b'<?xml version="1.0"?><Error/>', "XML"),
        (b'{"error": 404}', "JSON"),
        (b"https://example.org/cat.jpg", "a web address, not the file behind it"),
        (b"data:image/png;base64,iVBO", "a data URL, decode its base64 first"),
        (b"/9j/4AAQSkZJRg", "base64 text, decode it first"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "not an image (it begins with the bytes 52 49 46 46 24 00 00 00)"),
        (b"\0", "not an image (it begins with the bytes 00)"),
        (b"\xff\xd8", "not an image (it begins with the bytes ff d8)"),
    ],
)
def test_other_files_are_named(data: bytes, what: str) -> None:
    assert refusal(data) == f"it is {what}; send a JPEG, PNG or WebP file"


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("part", [0.02, 0.1, 0.3, 0.5, 0.85])
def test_truncated_files_are_rejected(name: str, part: float) -> None:
    decode_image(FILES[name], SPEC)
    cut = max(int(part * len(FILES[name])), 13)
    kind = name.rpartition(" ")[2]
    assert refusal(FILES[name][:cut]).startswith(f"the {kind} file is damaged or cut short: ")


@pytest.mark.parametrize("error", [SyntaxError("not a PNG"), struct.error("short"), zlib.error("bad"), KeyError(7), EOFError()])
@pytest.mark.parametrize("step", ["triptych_serving.images.decode.to_rgb", "PIL.PngImagePlugin.PngImageFile._open"])
def test_every_error_of_pillow_but_of_memory_is_converted(step: str, error: Exception) -> None:
    with mock.patch(step, side_effect=error):
        assert refusal(FILES["PNG"]).startswith("the PNG file is damaged or cut short: ")
    with mock.patch("triptych_serving.images.decode.to_rgb", side_effect=MemoryError), pytest.raises(MemoryError):
        decode_image(FILES["PNG"], SPEC)


def no_decoding() -> "mock._patch[mock.Mock]":
    return mock.patch("PIL.Image._getdecoder", side_effect=AssertionError("decoded"))


HEADERS: dict[str, Callable[[int, int], bytes]] = {
    "PNG": lambda width, height: png(width, height, 8, 2),
    "JPEG": lambda width, height: resized_jpeg_header(FILES["JPEG"], width, height),
    "WebP": webp_header,
}


@pytest.mark.parametrize(
    ("kind", "side", "limit"),
    [
        ("PNG", 30_000, "64000000 pixels"),
        ("JPEG", 30_000, "64000000 pixels"),
        ("WebP", 5_001, "25000000 pixels; send larger ones as"),
    ],
)
def test_decompression_bombs_are_rejected_from_the_header(kind: str, side: int, limit: str) -> None:
    with no_decoding():
        problem = refusal(HEADERS[kind](side, side))
    assert problem.startswith(f"the image is {side} x {side}, {side * side} pixels, the limit is {limit}")


@pytest.mark.parametrize(("width", "height"), [(101, 99), (99, 101)])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_the_limit_of_pixels_is_inclusive(kind: str, width: int, height: int) -> None:
    data = saved(picture(width, height), kind)
    with limited(MAX_PIXELS=9998):
        assert refusal(data) == f"the image is {width} x {height}, 9999 pixels, the limit is 9998 pixels"
    with limited(MAX_PIXELS=9999):
        decode_image(data, SPEC)


def test_the_limit_of_a_side_is_inclusive() -> None:
    data = saved(Image.new("L", (3, 70)))
    with limited(MAX_SIDE=69):
        assert refusal(data) == "the image is 3 x 70, the limit of a side is 69 pixels"
    with limited(MAX_SIDE=70):
        decode_image(data, SPEC)
    with no_decoding():
        assert refusal(png(65_536, 1, 8, 2)) == "the image is 65536 x 1, the limit of a side is 65535 pixels"


def test_limits_do_not_depend_on_pillows_global_one() -> None:
    data, huge = saved(picture(90, 70)), webp_header(16_000, 16_000)
    assert re.search(r"(more pixels than the limit of|the limit is) 64000000", refusal(huge)), "Pillow refuses it too"
    with mock.patch.object(Image, "MAX_IMAGE_PIXELS", 10):
        assert decode_image(data, SPEC).width == 90
    with mock.patch.object(Image, "MAX_IMAGE_PIXELS", None):
        assert "the limit is 25000000 pixels" in refusal(huge)


@pytest.mark.parametrize(
    "chunk",
    [(b"zTXt", b"Comment\0\0"), (b"iTXt", b"Comment\0\1\0\0\0"), (b"iCCP", b"profile\0\0")],
    ids=["zTXt", "iTXt", "iCCP"],
)
def test_bombs_in_png_chunks_are_rejected(chunk: tuple[bytes, bytes]) -> None:
    name, head = chunk
    rows = b"\0\0\0\0"
    decode_image(png(1, 1, 8, 2, rows, [(name, head + zlib.compress(bytes(100)))]), SPEC)
    assert "too large" in refusal(png(1, 1, 8, 2, rows, [(name, head + zlib.compress(bytes(10_000_000)))]))


def test_a_jpeg_with_too_many_scans_is_rejected() -> None:
    data, pixels = FILES["progressive JPEG"], 90 * 70
    last, scans = data.rindex(b"\xff\xda"), data.count(b"\xff\xda")
    repeated = data[:-2] + data[last:-2] * 5000 + data[-2:]
    assert refusal(repeated) == f"the JPEG file has 101 scans or more, the limit for {pixels} pixels is 100"
    problem = f"the JPEG file has {scans} scans or more, the limit for {pixels} pixels is {scans - 1}"
    for limits in ({"MAX_SCANS": scans - 1}, {"MAX_SCAN_PIXELS": scans * pixels - 1}):
        with limited(**limits):
            assert refusal(data) == problem
    with limited(MAX_SCANS=scans, MAX_SCAN_PIXELS=scans * pixels):
        decode_image(data, SPEC)


def test_scans_outside_of_the_image_are_not_counted() -> None:
    data = FILES["JPEG"]
    noise = b"\xff\xda" * 5000
    comment = b"\xff\xfe" + struct.pack(">H", len(noise) + 2) + noise
    np.testing.assert_array_equal(
        decode_image(data[:2] + comment + data[2:] + noise, SPEC).pixels, decode_image(data, SPEC).pixels
    )


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid file with some bytes changed, some cut out or doubled, and perhaps its end missing."""
    data = bytearray(FILES[draw(st.sampled_from(sorted(FILES)))])
    places = st.integers(0, len(data) - 1) | st.integers(0, 80)
    for place, value in draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=8)):
        data[place] = value
    if draw(st.booleans()):
        start, end = sorted((draw(places), draw(places)))
        data[start:end] = data[start:end] * draw(st.sampled_from([0, 2]))
    if draw(st.booleans()):
        del data[draw(places) :]
    return bytes(data)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=damaged() | st.binary(max_size=64), edge=st.booleans())
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damaged_files_are_decoded_or_rejected(data: bytes, edge: bool) -> None:
    result: Decoded | InvalidInputError
    try:
        with limited(MAX_PIXELS=FUZZ_PIXELS):
            result = decode_image(data, ImageSpec(16, 16, "shortest-edge", 20) if edge else SPEC)
    except InvalidInputError as error:
        result = error
    if isinstance(result, InvalidInputError):
        assert result.field == "images[0]"
        assert result.problem
    else:
        assert result.pixels.shape == (16, 16, 3)
        assert 0 < result.width * result.height <= FUZZ_PIXELS
