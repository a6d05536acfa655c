"""Files that are whole or not there."""

import os
import tempfile
from pathlib import Path


def write(path: Path, text: str) -> None:
    """UTF-8, over what is there; what is no text, such as odd bytes of a command line, becomes question marks.

    Raises:
        OSError: it cannot be written, and is named; nothing is left then.
    """
    try:
        _write(path, text)
    except OSError as error:  # of a file with a passing name, which nobody has heard of
        raise OSError(error.errno, error.strerror, str(path)) from error


def _write(path: Path, text: str) -> None:
    raw = text.encode("utf-8", errors="replace")
    if path.exists() and not path.is_file():  # a pipe, a device: nothing to put in its place
        path.write_bytes(raw)
        return
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(raw)
        Path(name).chmod(0o666 & ~_umask())  # as any new file has it
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
