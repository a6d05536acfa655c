"""Which documents are done, so that a job that goes on does not do them again."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triptych_cli.documents.database import Database
from triptych_embedded.identity import digest


class Records:
    """Those of one journal. Of one thread.

    A record is written before its file is put in its place, and counts when what is there is what it says. It says what was
    there before, too. So there is no moment at which the end of the process would leave a file that nobody knows.

    Files have the names that they have below the journal's folder, so that it can be moved with all that is in it; those that
    are elsewhere have absolute ones, so that one journal is good for several folders.

    Args:
        database: the journal.
        settings: SHA-256 of all that the translation of a document depends on beside the document and its format.
    """

    def __init__(self, database: Database, settings: str) -> None:
        self._database = database
        self._settings = settings
        self._folder = database.path.resolve().parent

    def done(self, target: Path, source_digest: str, format_name: str) -> dict[str, Any] | None:
        """The summary of a document that is done, or None.

        Args:
            target: where the translation should be.
            source_digest: SHA-256 of the source as it is now.
            format_name: what the source is read as; empty where it is only copied.
        """
        row = self._find(target)
        if row is None or row[:3] != (source_digest, self._made_by(format_name), _held(target)):
            return None
        summary: dict[str, Any] = json.loads(row[4])
        return summary

    def owns(self, file: Path) -> bool:
        """Whether what is there now was written by a job of this journal, and has not been changed since."""
        row = self._find(file)
        return row is not None and _held(file) in row[2:4]

    def add(self, target: Path, source_digest: str, format_name: str, target_digest: str, summary: Mapping[str, Any]) -> None:
        """A file is about to be put in its place.

        Raises:
            StoreError: the record cannot be written.
        """
        row = source_digest, self._made_by(format_name), target_digest, _held(target) or "", json.dumps(summary)
        with self._database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?, ?)", (self._key(target), *row))

    def _find(self, target: Path) -> tuple[str, str, str, str, str] | None:
        columns = "source_digest, settings_digest, target_digest, previous_digest, summary"
        query = f"SELECT {columns} FROM documents WHERE target = ?"
        with self._database.errors():
            row: tuple[str, str, str, str, str] | None = self._database.connection.execute(
                query, (self._key(target),)
            ).fetchone()
        return row

    def _key(self, target: Path) -> str:
        path = target.parent.resolve() / target.name
        return (path.relative_to(self._folder) if path.is_relative_to(self._folder) else path).as_posix()

    def _made_by(self, format_name: str) -> str:
        return digest(f"{self._settings} {format_name}")


def digest_of(file: Path) -> str:
    """SHA-256 of a file, which may be larger than the memory.

    Raises:
        OSError: it cannot be read.
    """
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _held(file: Path) -> str | None:
    """SHA-256 of what is there, if something is."""
    try:
        return digest_of(file)
    except OSError:
        return None
