"""Image files for tests."""

import struct
import zlib
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

Chunk = tuple[bytes, bytes]  # name and body


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    """Make a picture with noise and without symmetry, so that a flip or a swap of two channels is noticed."""
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    colours = np.stack([x, y * (1 - x), np.sin(7 * x * y) ** 2], axis=-1) * 220
    noise = np.random.default_rng(seed).integers(0, 35, colours.shape)
    return Image.fromarray((colours + noise).astype(np.uint8))


def saved(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def opened(data: bytes) -> Image.Image:
    """Open an image with Pillow alone."""
    return Image.open(BytesIO(data))


def oriented(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def png(width: int, height: int, depth: int, colour: int, rows: bytes = b"", extra: Sequence[Chunk] = ()) -> bytes:
    """Make a PNG file with any header; `rows` are the raw rows, each beginning with its filter's number."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = [(b"IHDR", header), *extra, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def resized_jpeg_header(data: bytes, width: int, height: int) -> bytes:
    """Change the size in a JPEG file's baseline frame header."""
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


def webp_header(width: int, height: int) -> bytes:
    """Make a lossless WebP file of a few bytes that claims this size."""
    data = saved(Image.new("RGB", (1, 1)), "WEBP", lossless=True)
    return data[:21] + struct.pack("<I", (width - 1) | (height - 1) << 14) + data[25:]
