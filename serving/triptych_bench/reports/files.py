"""Files that are written as a whole or not at all."""

import os
import tempfile
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Write UTF-8 and replace the file; lone surrogates, as in odd command lines, become question marks.

    Raises:
        OSError: The file cannot be written; nothing is left behind.
    """
    try:
        _write(path, text)
    except OSError as error:  # with the user's path instead of the temporary file's
        raise OSError(error.errno, error.strerror, str(path)) from error


def _write(path: Path, text: str) -> None:
    raw = text.encode("utf-8", errors="replace")
    if path.exists() and not path.is_file():  # a pipe or a device cannot be replaced
        path.write_bytes(raw)
        return
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(raw)
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)  # as for any new file
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
