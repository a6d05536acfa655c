"""Reports and comparisons as files and on the screen: JSON, CSV, plain text, and one HTML page.

For `triptych_cli` and scripts.
"""

import sys
from pathlib import Path

from triptych_client.files import replace_file

STDOUT = (Path("-"), Path("/dev/stdout"))  # the link leads to the file of `>> file`, which is not to be replaced


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all, or to standard output. Raises OSError.

    Lone surrogates, as in odd command lines, become question marks.
    """
    content = text.encode("utf-8", errors="replace")
    if path in STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    replace_file(path, content)
