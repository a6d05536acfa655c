"""Files on whatever pyarrow reaches: a disk that all nodes share, S3, GCS."""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyarrow import fs


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

    def write_whole(self, write: Callable[[Any], None]) -> None:
        """What `write` puts into a file takes this one's place when it is complete, or never."""
        self.files.create_dir(posixpath.dirname(self.path), recursive=True)
        unfinished = f"{self.path}.{uuid.uuid4().hex}.tmp"  # two workers may be at the same chunk
        try:
            with self.files.open_output_stream(unfinished) as stream:
                write(stream)
            self.files.move(unfinished, self.path)
        except BaseException:
            if self.files.get_file_info(unfinished).type == fs.FileType.File:
                self.files.delete_file(unfinished)
            raise

    def delete_folder(self) -> None:
        """With all that is in it, if it is there."""
        if self.files.get_file_info(self.path).type == fs.FileType.Directory:
            self.files.delete_dir(self.path)
