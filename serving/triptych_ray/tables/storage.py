"""Files on whatever pyarrow reaches: a disk that all nodes share, S3, GCS."""

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
    """One place: a file or a folder.

    Args:
        place: a path, or a URI.
    """

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
        """The last part of its path."""
        return posixpath.basename(str(self.path))

    @property
    def is_file(self) -> bool:
        """Whether there is such a file."""
        return bool(self.files.get_file_info(self.path).type == fs.FileType.File)

    @property
    def stamp(self) -> str:
        """Changes when the file does. Raises FileNotFoundError."""
        info = self.files.get_file_info(self.path)
        if info.type != fs.FileType.File:
            raise FileNotFoundError(f"{self.place}: no such file")
        return f"{info.size} {info.mtime_ns}"

    @property
    def digest(self) -> str:
        """SHA-256 of its content; all of it is read."""
        found = hashlib.sha256()
        with self.files.open_input_stream(self.path) as stream:
            while block := stream.read(BLOCK_BYTES):
                found.update(block)
        return found.hexdigest()

    def write_whole(self, write: Callable[[Any], None], ready: Callable[[Storage], None] = lambda _: None) -> None:
        """What `write` puts into a file takes this one's place when it is complete, or never.

        Args:
            write: gets a stream.
            ready: gets the file that is complete, just before it takes the place.
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
        """Beside it, by a name of its own: two workers may be at the same chunk."""
        beside, suffix = copy(self), f".{uuid.uuid4().hex}.tmp"
        beside.place, beside.path = self.place + suffix, f"{self.path}{suffix}"
        return beside

    def delete_folder(self) -> None:
        """With all that is in it, if it is there."""
        if self.files.get_file_info(self.path).type == fs.FileType.Directory:
            self.files.delete_dir(self.path)
