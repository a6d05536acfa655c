"""Files that pyarrow can access: on a disk that all nodes share, S3 or GCS."""

from __future__ import annotations

import hashlib
import posixpath
import uuid
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

from pyarrow import fs

BLOCK_BYTES = 1 << 20


class Storage:
    """A file or a folder, given by its path or URI."""

    def __init__(self, place: str) -> None:
        self.place = place
        if "://" in place:
            self.files, self.path = fs.FileSystem.from_uri(place)
        else:
            self.files, self.path = fs.LocalFileSystem(), str(Path(place).absolute())

    def __truediv__(self, name: str) -> Storage:
        return Storage(f"{self.place.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return posixpath.basename(str(self.path))

    @property
    def is_file(self) -> bool:
        """The file exists."""
        return bool(self.files.get_file_info(self.path).type == fs.FileType.File)

    @property
    def stamp(self) -> str:
        """Size and modification time. Raises FileNotFoundError."""
        info = self.files.get_file_info(self.path)
        if info.type != fs.FileType.File:
            raise FileNotFoundError(f"{self.place}: no such file")
        return f"{info.size} {info.mtime_ns}"

    @property
    def digest(self) -> str:
        """SHA-256 of the content, which is read completely."""
        found = hashlib.sha256()
        with self.files.open_input_stream(self.path) as stream:
            while block := stream.read(BLOCK_BYTES):
                found.update(block)
        return found.hexdigest()

    def write_whole(self, write: Callable[[Any], None], ready: Callable[[Storage], None] = lambda _: None) -> None:
        """Write the file under a temporary name and rename it when it is complete.

        Args:
            ready: called with the complete file just before it is renamed.
        """
        self.files.create_dir(posixpath.dirname(self.path), recursive=True)
        unfinished = self._unfinished()
        try:
            with self.files.open_output_stream(unfinished.path) as stream:
                write(stream)
            ready(unfinished)
            self.files.move(unfinished.path, self.path)
        except BaseException:
            if unfinished.is_file:
                self.files.delete_file(unfinished.path)
            raise

    def _unfinished(self) -> Storage:
        """Return a file beside this one with a unique name: two workers may write the same chunk."""
        beside, suffix = copy(self), f".{uuid.uuid4().hex}.tmp"
        beside.place, beside.path = self.place + suffix, f"{self.path}{suffix}"
        return beside

    def delete_folder(self) -> None:
        """Delete the folder and everything in it, if it exists."""
        if self.files.get_file_info(self.path).type == fs.FileType.Directory:
            self.files.delete_dir(self.path)
