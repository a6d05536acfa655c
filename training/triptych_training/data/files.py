"""Files and folders that appear in one move."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from triptych_training.errors import CheckpointError

FULL = (errno.ENOSPC, errno.EDQUOT)
# What the writers of torch and safetensors say then.
FULL_SIGNS = ("unexpected pos", "PytorchStreamWriter failed", "iostream error", *(f"(os error {number})" for number in FULL))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path to write a file or folder to, which then becomes `path`: a kill at any moment leaves no incomplete one.

    An old file is replaced; an old folder is not, unless it is empty.

    Raises:
        CheckpointError: it could not be written; an old file or folder is unchanged.
    """
    partial = path.with_name(f"{path.name}.partial")
    _remove(partial)  # of an earlier, interrupted one
    try:
        yield partial
        partial.replace(path)
    except (OSError, RuntimeError, SafetensorError) as error:
        reason = str(error).partition("\n")[0]
        if isinstance(error, OSError):  # writes to open files name none
            is_own, is_full = str(error.filename or path).startswith(str(path)), error.errno in FULL
        else:
            is_full = any(sign in reason for sign in FULL_SIGNS)
            is_own = is_full or isinstance(error, SafetensorError)
        if not is_own:  # of the caller's work, such as a missing input
            raise
        raise CheckpointError(f"{path}: cannot be written{'; is the disk full?' if is_full else ''} ({reason})") from error
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
