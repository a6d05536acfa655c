"""Files and folders that appear in one move."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from triptych_training.errors import CheckpointError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path to write a file or folder to, which then replaces `path`: a kill at any moment leaves no incomplete one.

    Raises:
        CheckpointError: it could not be written; an old file is unchanged.
    """
    partial = path.with_name(f"{path.name}.partial")
    _remove(partial)  # of an earlier, interrupted one
    try:
        yield partial
        if path.is_dir():
            shutil.rmtree(path)
        partial.replace(path)
    except (OSError, RuntimeError, SafetensorError) as error:  # torch's and safetensors' own, on a full disk
        raise CheckpointError(f"{path}: cannot be written; is the disk full? ({str(error).partition(chr(10))[0]})") from error
    finally:
        _remove(partial)


def replace_text(path: Path, text: str) -> None:
    """Write a text file as `replacing` does."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
