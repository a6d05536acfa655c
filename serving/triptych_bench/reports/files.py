"""Text files that are written as a whole or not at all."""

from pathlib import Path

from triptych_client.files import replace_file


def write(path: Path, text: str) -> None:
    """Write UTF-8 and replace the file; lone surrogates, as in odd command lines, become question marks.

    Raises:
        OSError: The file cannot be written; nothing is left behind.
    """
    try:
        replace_file(path, text.encode("utf-8", errors="replace"))
    except OSError as error:  # with the user's path instead of the temporary file's
        raise OSError(error.errno, error.strerror, str(path)) from error
