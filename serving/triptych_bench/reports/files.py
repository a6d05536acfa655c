"""Files that are whole or not there."""

import os
import tempfile
from pathlib import Path


def write(path: Path, text: str) -> None:
    """UTF-8, over what is there; what is no text, such as odd bytes of a command line, becomes question marks.

    Raises:
        OSError: it cannot be written; nothing is left then.
    """
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
