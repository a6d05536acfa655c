"""Reports and comparisons as files and on the screen: JSON, CSV, plain text, and one HTML page.

For `triptych_cli` and scripts.
"""

from pathlib import Path

from triptych_client.files import replace_file


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all; lone surrogates, as in odd command lines, become question marks. Raises OSError."""
    try:
        replace_file(path, text.encode("utf-8", errors="replace"))
    except OSError as error:  # with the user's path instead of the temporary file's
        raise OSError(error.errno, error.strerror, str(path)) from error
