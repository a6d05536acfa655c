"""SQLite files that survive a killed process: journals of jobs, and translation memories."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

APPLICATION = 0x54525054  # "TRPT", SQLite's application_id: it marks files of this program
VERSION = 1  # of the tables
BUSY_SECONDS = 30.0  # another job may be writing to the same memory

TABLES = """
CREATE TABLE origins (
    id INTEGER PRIMARY KEY,
    identity TEXT NOT NULL UNIQUE,
    source_language TEXT NOT NULL,
    target_language TEXT NOT NULL
);
CREATE TABLE answers (
    origin INTEGER NOT NULL REFERENCES origins,
    aligned INTEGER NOT NULL,
    prefix TEXT NOT NULL,
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    truncated INTEGER NOT NULL,
    alignment BLOB,
    PRIMARY KEY (origin, aligned, prefix, source)
) WITHOUT ROWID;
CREATE TABLE pairs (
    id INTEGER PRIMARY KEY,
    source_language TEXT NOT NULL,
    target_language TEXT NOT NULL,
    edition TEXT NOT NULL,
    UNIQUE (source_language, target_language)
);
CREATE TABLE entries (
    pair INTEGER NOT NULL REFERENCES pairs,
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    PRIMARY KEY (pair, source)
) WITHOUT ROWID;
CREATE TABLE documents (
    target TEXT PRIMARY KEY,
    source_digest TEXT NOT NULL,
    settings_digest TEXT NOT NULL,
    target_digest TEXT NOT NULL,
    previous_digest TEXT NOT NULL,
    summary TEXT NOT NULL
);
"""


class DatabaseError(Exception):
    """A journal or memory cannot be used; the message is one line that names the file."""


class Database:
    """An open journal or memory. Not thread-safe. A context manager.

    What was committed survives the end of the process, however it ends.

    Args:
        path: created if missing.
        alone: lock the file until it is closed.

    Raises:
        DatabaseError: the file is in use, not one of this program, or cannot be written.
    """

    def __init__(self, path: Path, alone: bool = False) -> None:
        self.path = path
        with self.errors():
            self.connection = sqlite3.connect(path, timeout=0.0 if alone else BUSY_SECONDS, isolation_level=None)
        try:
            with self.errors():
                self._prepare(alone)
        except BaseException:
            self.connection.close()
            raise

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *details: object) -> None:
        self.connection.close()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise errors of SQLite as DatabaseError."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            locked = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
            raise DatabaseError(f"{self.path}: {'is in use by another job' if locked else error}") from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write everything inside the block, or nothing."""
        with self.errors():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
            except BaseException:
                self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")

    def _prepare(self, alone: bool) -> None:
        run = self.connection.execute
        if alone:
            run("PRAGMA locking_mode = EXCLUSIVE")
        [tables] = run("SELECT count(*) FROM sqlite_schema").fetchone()
        [application] = run("PRAGMA application_id").fetchone()
        [version] = run("PRAGMA user_version").fetchone()
        if tables and application != APPLICATION:
            raise DatabaseError(f"{self.path}: not a journal or translation memory of Triptych")
        if tables and version != VERSION:
            raise DatabaseError(f"{self.path}: of version {version}, this release has {VERSION}")
        run("PRAGMA journal_mode = WAL")
        # A finished document must have its record, even after a power cut.
        run(f"PRAGMA synchronous = {'FULL' if alone else 'NORMAL'}")
        with self.transaction():
            if not run("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                for statement in filter(str.strip, TABLES.split(";")):
                    run(statement)
                run(f"PRAGMA application_id = {APPLICATION}")
                run(f"PRAGMA user_version = {VERSION}")
