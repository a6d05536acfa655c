"""Files that appear in one move, so that other processes never read half of one."""

from contextlib import suppress
from pathlib import Path


def replace_file(file: Path, content: bytes) -> None:
    """Write a file as a whole or not at all. Raises OSError: it cannot be written."""
    written = file.with_suffix(".new")
    try:
        written.write_bytes(content)
        written.replace(file)
    except OSError:
        with suppress(OSError):
            written.unlink()
        raise
