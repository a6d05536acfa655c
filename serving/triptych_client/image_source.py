"""Where an image comes from: bytes, a path or a binary file."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import BinaryIO, TypeAlias

ImageSource: TypeAlias = bytes | bytearray | memoryview | str | PathLike[str] | BinaryIO
"""A JPEG, PNG or WebP file: its bytes, its path, or the file itself, opened in binary mode."""


def read_image(source: ImageSource) -> bytes:
    """The file's bytes.

    Raises:
        OSError: It cannot be read.
        TypeError: It is none of the kinds above, or a file opened as text.
    """
    if isinstance(source, bytes):
        return source
    if isinstance(source, bytearray | memoryview):
        return bytes(source)
    if isinstance(source, str | PathLike):
        return Path(source).read_bytes()
    read = getattr(source, "read", None)
    if read is None:
        raise TypeError(f"an image is bytes, a path or a binary file, not {type(source).__name__}")
    content = read()
    if not isinstance(content, bytes):
        raise TypeError(f"an image's file gave {type(content).__name__}, must be opened in binary mode")
    return content


def read_images(sources: Sequence[ImageSource]) -> list[bytes]:
    """The files' bytes, in order. Raises OSError and TypeError as `read_image`."""
    check_sources(sources, "classify_image_many")
    return [read_image(source) for source in sources]


def check_sources(sources: object, method: str) -> None:
    """Raises TypeError for a lone image: a path is a sequence of letters too, bytes one of numbers, a file one of lines."""
    if isinstance(sources, str | bytes | bytearray | memoryview | PathLike) or hasattr(sources, "read"):
        raise TypeError(f"{method} takes several images; classify_image takes one image")
