"""Where a document comes from, and where its translation goes."""

import os
import tempfile
from os import PathLike
from pathlib import Path
from typing import BinaryIO, TypeAlias

DocumentSource: TypeAlias = bytes | bytearray | memoryview | str | PathLike[str] | BinaryIO
"""A document: its bytes, its path, or the file itself, opened in binary mode."""

DocumentTarget: TypeAlias = str | PathLike[str] | BinaryIO
"""Where the translation goes: a path, or a file opened in binary mode."""


def read_document(source: DocumentSource) -> tuple[bytes, str]:
    """The document's bytes, and the name of its file, empty where it has none.

    Raises:
        OSError: It cannot be read.
        TypeError: It is none of the kinds above, or a file opened as text.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source), ""
    if isinstance(source, str | PathLike):
        path = Path(source)
        return path.read_bytes(), path.name
    read = getattr(source, "read", None)
    if read is None:
        raise TypeError(f"a document is bytes, a path or a binary file, not {type(source).__name__}")
    content = read()
    if not isinstance(content, bytes):
        raise TypeError(f"a document's file gave {type(content).__name__}, must be opened in binary mode")
    name = getattr(source, "name", "")
    return content, Path(name).name if isinstance(name, str) else ""


def write_document(target: DocumentTarget | None, content: bytes) -> None:
    """Write it; a path has all of it or is as before.

    Raises:
        OSError: It cannot be written.
    """
    if target is None:
        return
    if isinstance(target, str | PathLike):
        _replace(Path(target), content)
    else:
        target.write(content)


def _replace(path: Path, content: bytes) -> None:
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
    """There is no way to look at it but to set it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
