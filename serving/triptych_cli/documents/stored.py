"""SQLite files that survive a killed process: the model's translations, and records of finished documents."""

import hashlib
import json
import sqlite3
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from triptych_documents.sentences import Alignment, SentenceRequest, SentenceTranslation, Span
from triptych_embedded.sentences import TranslatorIdentity, digest

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
        """Raise errors of SQLite, and of values that nobody has stored, as DatabaseError."""
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError, json.JSONDecodeError, zlib.error, struct.error) as error:
            raise DatabaseError(f"{self.path}: {_problem(error)}") from error

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


def _problem(error: Exception) -> str:
    if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) == sqlite3.SQLITE_CORRUPT:  # values have no code
        return "is damaged; restore a copy of it, or delete it to translate everything again"
    return "is in use by another job" if isinstance(error, sqlite3.OperationalError) and "locked" in str(error) else str(error)


QUERY_TEXTS = 500  # texts per query; SQLite takes at least 999 parameters
FIRST_LOOKUP = 100_000  # after this many translations of this run, its UnitTranslator may have forgotten the first
FIND = """
SELECT source, target, truncated, alignment FROM answers WHERE origin = ? AND aligned = ? AND prefix = '' AND source IN ({})
"""
HEAD = struct.Struct("<II")  # numbers of source tokens and target tokens
FAST = 1  # level of zlib

RecordRow = tuple[str, str, str, str, str]


class StoredTranslations:
    """Translations of one model with the same languages and options. Not thread-safe."""

    def __init__(self, database: Database, identity: TranslatorIdentity) -> None:
        self._database = database
        self._new: list[tuple[SentenceRequest, SentenceTranslation]] = []
        with database.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO origins (identity, source_language, target_language) VALUES (?, ?, ?)",
                (identity.text, identity.source_language, identity.target_language),
            )
            [self._origin] = connection.execute("SELECT id FROM origins WHERE identity = ?", (identity.text,)).fetchone()
            first = connection.execute("SELECT 1 FROM answers WHERE origin = ? LIMIT 1", (self._origin,)).fetchone()
        self._unknown = FIRST_LOOKUP if first is None else 0  # translations to come before a lookup can find anything

    def find(self, requests: Sequence[SentenceRequest]) -> Mapping[SentenceRequest, SentenceTranslation]:
        """Return the stored translations of an earlier run, or of this one if its UnitTranslator may have forgotten them."""
        if self._unknown > 0:
            return {}
        found: dict[SentenceRequest, SentenceTranslation] = {}
        with self._database.errors():
            for aligned in (False, True):
                texts = [request.text for request in requests if request.aligned is aligned]
                found |= {SentenceRequest(text, aligned): translation for text, translation in self._find(aligned, texts)}
        return found

    def add(self, request: SentenceRequest, translation: SentenceTranslation) -> None:
        """Keep a translation for `flush`."""
        self._new.append((request, translation))

    def flush(self) -> None:
        """Write new translations. Raises DatabaseError: they cannot be written."""
        if not self._new:
            return
        rows = [
            (self._origin, request.aligned, "", request.text, one.text, one.truncated, one.alignment and pack(one.alignment))
            for request, one in self._new
        ]
        with self._database.transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        self._unknown -= len(rows)
        self._new.clear()

    def _find(self, aligned: bool, texts: Sequence[str]) -> Iterator[tuple[str, SentenceTranslation]]:
        for start in range(0, len(texts), QUERY_TEXTS):
            some = texts[start : start + QUERY_TEXTS]
            query = FIND.format(",".join("?" * len(some)))
            rows = self._database.connection.execute(query, (self._origin, aligned, *some))
            for text, target, truncated, packed in rows:
                yield text, SentenceTranslation(target, unpack(packed) if packed else None, bool(truncated))


def pack(alignment: Alignment) -> bytes:
    """Serialize an alignment without loss: counts, spans and weights (32-bit floats), compressed."""
    source, target = alignment.source, alignment.target
    edges = [edge for span in (*source, *target) for edge in span]
    weights = [weight for row in alignment.weights for weight in row]
    raw = struct.pack(f"<{len(edges)}I{len(weights)}f", *edges, *weights)
    return zlib.compress(HEAD.pack(len(source), len(target)) + raw, FAST)


def unpack(packed: bytes) -> Alignment:
    """Return the alignment that `pack` serialized."""
    raw = zlib.decompress(packed)
    sources, targets = HEAD.unpack_from(raw)
    count = 2 * (sources + targets)
    values = struct.unpack_from(f"<{count}I{sources * targets}f", raw, HEAD.size)
    edges, weights = values[:count], values[count:]
    spans: Sequence[Span] = list(zip(edges[::2], edges[1::2], strict=True))
    rows = [list(weights[start * sources : (start + 1) * sources]) for start in range(targets)]
    return Alignment(spans[:sources], spans[sources:], rows)


class DocumentRecords:
    """Records of the finished documents in a journal, so that they are not translated again. Not thread-safe.

    A record is written before its file is renamed, and counts if the file is as it says. It also has the digest of the file
    that was there before. So the end of the process never leaves a file that no record knows.

    Files have paths relative to the folder of the journal, so that it can be moved with everything in it; files elsewhere have
    absolute paths, so that one journal can serve several folders.

    Args:
        settings: SHA-256 of everything that a translation depends on beside the document and its format.
    """

    def __init__(self, database: Database, settings: str) -> None:
        self._database = database
        self._settings = settings
        self._folder = database.path.resolve().parent

    def find(self, target: Path, source_digest: str, format_name: str) -> dict[str, Any] | None:
        """Return the summary of a finished document, or None.

        Args:
            source_digest: SHA-256 of the source as it is now.
            format_name: format of the source; empty if it is only copied.
        """
        row = self._find(target)
        if row is None or row[:3] != (source_digest, self._made_by(format_name), _current_digest(target)):
            return None
        with self._database.errors():
            summary: dict[str, Any] = json.loads(row[4])
        return summary

    def owns(self, file: Path) -> bool:
        """Tell whether a job of this journal wrote the file, and it has not been changed since."""
        row = self._find(file)
        return row is not None and _current_digest(file) in row[2:4]

    def add(self, target: Path, source_digest: str, format_name: str, target_digest: str, summary: Mapping[str, Any]) -> None:
        """Record a file that is about to be renamed. Raises DatabaseError: the record cannot be written."""
        row = source_digest, self._made_by(format_name), target_digest, _current_digest(target) or "", json.dumps(summary)
        with self._database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?, ?)", (self._key(target), *row))

    def _find(self, target: Path) -> RecordRow | None:
        columns = "source_digest, settings_digest, target_digest, previous_digest, summary"
        query = f"SELECT {columns} FROM documents WHERE target = ?"
        with self._database.errors():
            row: RecordRow | None = self._database.connection.execute(query, (self._key(target),)).fetchone()
        return row

    def _key(self, target: Path) -> str:
        path = target.parent.resolve() / target.name
        name = (path.relative_to(self._folder) if path.is_relative_to(self._folder) else path).as_posix()
        return name.encode(errors="backslashreplace").decode()  # SQLite rejects names that are not UTF-8

    def _made_by(self, format_name: str) -> str:
        return digest(f"{self._settings} {format_name}")


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file, which may be larger than the memory. Raises OSError: it cannot be read."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _current_digest(file: Path) -> str | None:
    try:
        return file_digest(file)
    except OSError:
        return None
