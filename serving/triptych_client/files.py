"""Documents and images from bytes, paths and binary files, and translated documents to paths and binary files."""

import errno
import io
import os
import tempfile
from os import PathLike
from pathlib import Path
from typing import BinaryIO, TypeAlias

DocumentSource: TypeAlias = bytes | bytearray | memoryview | str | PathLike[str] | BinaryIO
"""A document: its bytes, its path, or a file opened in binary mode."""

DocumentTarget: TypeAlias = str | PathLike[str] | BinaryIO
"""The destination of a translated document: a path, or a file opened in binary mode."""

ImageSource: TypeAlias = bytes | bytearray | memoryview | str | PathLike[str] | BinaryIO
"""A JPEG, PNG or WebP file: its bytes, its path, or a file opened in binary mode."""


def read_file(source: DocumentSource | ImageSource, noun: str) -> tuple[bytes, str]:
    """Return the content of a file and its name, which is empty if it has none.

    Args:
        noun: For errors: "a document" or "an image".

    Raises:
        OSError: The file cannot be read.
        TypeError: The source is of no supported type, or a file opened in text mode.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source), ""
    if isinstance(source, str | PathLike):
        path = Path(source)
        return path.read_bytes(), path.name
    read = getattr(source, "read", None)
    if read is None:
        raise TypeError(f"{noun} is bytes, a path or a binary file, not {type(source).__name__}")
    content = read()
    if not isinstance(content, bytes):
        raise TypeError(f"the file of {noun} returned {type(content).__name__}, must be opened in binary mode")
    name = getattr(source, "name", "")
    return content, Path(name).name if isinstance(name, str) else ""


def read_image(source: ImageSource) -> bytes:
    """Return the content of an image file. Raises as `read_file`."""
    return read_file(source, "an image")[0]


def check_images(sources: object, method: str) -> None:
    """Reject a single image where several belong: paths, bytes and files are iterable, too.

    Raises:
        TypeError: `sources` is one image.
    """
    if isinstance(sources, str | bytes | bytearray | memoryview | PathLike) or hasattr(sources, "read"):
        raise TypeError(f"{method} takes several images; classify_image takes one image")


def check_target(target: DocumentTarget | None) -> None:
    """Find out, before the work, whether `target` can be written.

    Raises:
        OSError: It is a folder, its folder does not exist, or one must not write there.
        TypeError: It is neither a path nor a binary file.
    """
    if target is None:
        return
    if isinstance(target, str | PathLike):
        path = Path(target)
        number = 0
        if path.is_dir():
            number = errno.EISDIR
        elif not path.parent.is_dir():
            number = errno.ENOENT
        elif not os.access(path if path.exists() and not path.is_file() else path.resolve().parent, os.W_OK):
            number = errno.EACCES
        if number:
            raise OSError(number, f"cannot be written: {os.strerror(number)}", str(path))
    elif isinstance(target, io.TextIOBase) or not hasattr(target, "write"):
        raise TypeError(f"target is a path or a file opened in binary mode, not {type(target).__name__}")


def write_document(target: DocumentTarget | None, content: bytes) -> None:
    """Write a document, if there is a target. A path is replaced as a whole or not at all.

    Raises:
        OSError: The target cannot be written.
    """
    if isinstance(target, str | PathLike):
        replace_file(Path(target), content)
    elif target is not None:
        target.write(content)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all, behind a link too; pipes and devices are written to.

    Raises:
        OSError: It cannot be written; names `path`, not a temporary file or, as on a full disk, none.
    """
    try:
        _replace_file(path, content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _replace_file(path: Path, content: bytes) -> None:
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    path = path.resolve()
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
        temporary.chmod(path.stat().st_mode if path.exists() else 0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    # The only way to read it is to set it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
