"""Opening of image files: format, size limits, and one error for all that Pillow raises over a bad file.

Pillow's file classes are called directly: `Image.open` warns about sizes above a process-wide limit.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO

from PIL import Image
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from triptych_serving.errors import InvalidInputError

# Limits of image files, checked from the header before anything is decoded.
MAX_PIXELS = 64_000_000  # Pillow holds 4 bytes for each: 256 MB
MAX_WEBP_PIXELS = 25_000_000  # whose decoder and its copies hold 16 bytes for each: 400 MB
MAX_SIDE = 65_535  # pixels, the most that JPEG knows; the resize needs some 50 bytes for each
MAX_SCANS = 100  # of a progressive JPEG; encoders write about 10, each costs a pass over the whole image
MAX_SCAN_PIXELS = 1_024_000_000  # scans times pixels: 16 scans of the largest image, about 1 s

_ACCEPTED = "send a JPEG, PNG or WebP file"
_READERS: tuple[tuple[str, re.Pattern[bytes], Callable[[BytesIO], ImageFile]], ...] = (
    ("JPEG", re.compile(rb"\xff\xd8\xff"), JpegImageFile),
    ("PNG", re.compile(rb"\x89PNG\r\n\x1a\n"), PngImageFile),
    ("WEBP", re.compile(rb"RIFF.{4}WEBP", re.DOTALL), WebPImageFile),
)
# Common mistakes, by the first bytes of the file.
_OTHERS = tuple(
    (name, re.compile(pattern, re.DOTALL | re.IGNORECASE))
    for name, pattern in (
        ("a GIF image", rb"GIF8[79]a"),
        ("a BMP image", rb"BM.{4}\0\0\0\0"),
        ("a TIFF image", rb"II[*+]\0|MM\0[*+]"),
        ("an AVIF image", rb".{4}ftypavi[fs]"),
        ("a HEIC image", rb".{4}ftyp(hei[cxms]|hev[cx]|mif1|msf1)"),
        ("a JPEG XL image", rb"\xff\x0a|\0\0\0\x0cJXL "),
        ("a JPEG 2000 image", rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51"),
        ("an icon", rb"\0\0[\x01\x02]\0"),
        ("a Photoshop document", rb"8BPS"),
        ("a video", rb".{4}ftyp|\x1aE\xdf\xa3|RIFF.{4}AVI "),
        ("a PDF document", rb"%PDF"),
        ("a ZIP archive", rb"PK\x03\x04"),
        ("gzip-compressed", rb"\x1f\x8b"),
        ("an SVG drawing", rb"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)?(<!DOCTYPE svg[^>]*>\s*)?<svg"),
        ("an HTML page", rb"\s*<(!DOCTYPE )?html"),
        ("XML", rb"\s*<\?xml"),
        ("JSON", rb"\s*[{\[]\s*[\"{\[]"),
        ("a web address, not the file behind it", rb"https?://"),
        ("a data URL, decode its base64 first", rb"data:[a-z]+/"),
        ("base64 text, decode it first", rb"/9j/|iVBORw0KGgo|UklGR"),
    )
)
_SNIFFED = 1024  # bytes; a comment may come before <svg>
_JPEG_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")
_END, _SCAN, _BARE = 0xD9, 0xDA, (0x01, 0xD8)  # markers in _BARE have no length


def open_image(data: bytes, field: str) -> ImageFile:
    """Read the header of a JPEG, PNG or WebP file without decoding pixels.

    Raises:
        InvalidInputError: the file is empty, of another format, damaged or over a limit.
    """
    if not data:
        raise InvalidInputError(field, f"the file is empty; {_ACCEPTED}")
    for name, beginning, reader in _READERS:
        if beginning.match(data):
            with damage_refused(name, field):
                image = reader(BytesIO(data))
            _check_size(image, field)
            if name == "JPEG":
                _check_scans(data, image.width * image.height, field)
            return image
    raise InvalidInputError(field, f"it is {_describe(data[:_SNIFFED])}; {_ACCEPTED}")


@contextmanager
def damage_refused(name: str | None, field: str) -> Iterator[None]:
    """Convert the errors that Pillow raises over a bad file, which may be of any class, to InvalidInputError.

    MemoryError passes: sizes were checked before, so the machine is the cause, not the file.
    """
    try:
        yield
    except (InvalidInputError, MemoryError):
        raise
    except Image.DecompressionBombError as error:
        raise InvalidInputError(field, f"the image has more pixels than the limit of {MAX_PIXELS}") from error
    except Exception as error:
        raise InvalidInputError(field, f"the {name} file is damaged or cut short: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _describe(head: bytes) -> str:
    for name, beginning in _OTHERS:
        if beginning.match(head):
            return name
    return f"not an image (it begins with the bytes {head[:8].hex(' ')})"


def _check_size(image: ImageFile, field: str) -> None:
    width, height = image.size
    most = min(MAX_PIXELS, MAX_WEBP_PIXELS) if image.format == "WEBP" else MAX_PIXELS
    if width * height > most:
        remedy = "; send larger ones as JPEG or PNG" if most < MAX_PIXELS else ""
        problem = f"the image is {width} x {height}, {width * height} pixels, the limit is {most} pixels{remedy}"
        raise InvalidInputError(field, problem)
    if max(width, height) > MAX_SIDE:
        raise InvalidInputError(field, f"the image is {width} x {height}, the limit of a side is {MAX_SIDE} pixels")


def _check_scans(data: bytes, pixels: int, field: str) -> None:
    """Reject a small JPEG with many empty scans, which would keep a thread busy for seconds to minutes."""
    most = min(MAX_SCANS, MAX_SCAN_PIXELS // pixels)
    if data.count(b"\xff\xda") > most and (scans := _count_scans(data, most)) > most:
        raise InvalidInputError(field, f"the JPEG file has {scans} scans or more, the limit for {pixels} pixels is {most}")


def _count_scans(data: bytes, limit: int) -> int:
    """Count the scans of the image itself, not of thumbnails or of data after its end; stop above `limit`."""
    scans, at = 0, 2
    while scans <= limit and (marker := _JPEG_MARKER.search(data, at)):
        at, code = marker.end(), marker[1][0]
        if code == _END:
            break
        if code not in _BARE:
            scans += code == _SCAN
            at += int.from_bytes(data[at : at + 2], "big")
    return scans
