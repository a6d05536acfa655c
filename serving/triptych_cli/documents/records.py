"""Which documents are done, so that a job that goes on does not do them again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triptych_cli.documents.database import Database
from triptych_cli.documents.identity import digest


class Records:
    """Those of one journal. Of one thread.

    A record is written before its document is put in its place, and counts when what is there is what it says. So there is no
    moment at which the end of the process would leave a document that nobody knows.

    Args:
        database: the journal.
        settings: SHA-256 of all that the translation of a document depends on beside the document.
    """

    def __init__(self, database: Database, settings: str) -> None:
        self._database = database
        self._settings = settings

    def done(self, name: str, source_digest: str, target: Path) -> dict[str, Any] | None:
        """The summary of a document that is done, or None.

        Args:
            name: of its translation.
            source_digest: SHA-256 of the source as it is now.
            target: where the translation should be.
        """
        row = self._find(name)
        if row is None or row[:2] != (source_digest, self._settings) or not is_content(target, row[2]):
            return None
        summary: dict[str, Any] = json.loads(row[3])
        return summary

    def owns(self, name: str, target: Path) -> bool:
        """Whether what is there now was written by a job of this journal, and has not been changed since."""
        row = self._find(name)
        return row is not None and is_content(target, row[2])

    def add(self, name: str, source_digest: str, target_digest: str, summary: Mapping[str, Any]) -> None:
        """A document is about to be put in its place.

        Raises:
            StoreError: the record cannot be written.
        """
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?)",
                (name, source_digest, self._settings, target_digest, json.dumps(summary)),
            )

    def _find(self, name: str) -> tuple[str, str, str, str] | None:
        query = "SELECT source_digest, settings_digest, target_digest, summary FROM documents WHERE target = ?"
        with self._database.errors():
            row: tuple[str, str, str, str] | None = self._database.connection.execute(query, (name,)).fetchone()
        return row


def is_content(path: Path, expected: str) -> bool:
    """Whether a file has this SHA-256."""
    try:
        return digest(path.read_bytes()) == expected
    except OSError:
        return False
