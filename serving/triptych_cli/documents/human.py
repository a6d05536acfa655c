"""Human translations from TMX files and memories; they take precedence over the model's."""

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from triptych_cli.documents.database import Database
from triptych_cli.documents.tmx import is_same_language, read_tmx
from triptych_documents.encoding import surrogate
from triptych_documents.formats.bilingual import MemoryEntry


class HumanTranslations:
    """Human translations for one pair of languages. Not thread-safe.

    Args:
        files: TMX files, which take precedence over the memory.
        source_language: of the job; empty matches any.
        target_language: of the job; empty matches any.

    Raises:
        DatabaseError: the memory cannot be read.
        DocumentError: a TMX file cannot be read.
    """

    def __init__(self, database: Database, files: Sequence[Path], source_language: str, target_language: str) -> None:
        languages = source_language, target_language
        self.dropped = {file: Counter[str]() for file in files}  # entries that cannot be used, by reason
        self._read: dict[str, str] = {}
        for file in reversed(files):
            for entry in read_tmx(file, self.dropped[file]):
                if _fits(entry[:2], languages):
                    self._read[entry.source] = entry.target
                else:
                    self.dropped[file]["in other languages"] += 1
        self._database = database
        columns = "id, edition, source_language, target_language"
        with database.errors():
            rows = database.connection.execute(f"SELECT {columns} FROM pairs").fetchall()
        self.editions: dict[int, str] = {
            pair: edition for pair, edition, *own in rows if _fits(own, languages)
        }  # change with entries

    def find(self, text: str) -> str | None:
        """Return the translation of exactly this text."""
        if text in self._read:
            return self._read[text]
        if not self.editions or surrogate(text):  # SQLite takes no half surrogate pairs
            return None
        query = f"SELECT target FROM entries WHERE source = ? AND pair IN ({','.join('?' * len(self.editions))}) LIMIT 1"
        with self._database.errors():
            row: tuple[str] | None = self._database.connection.execute(query, (text, *self.editions)).fetchone()
        return row[0] if row else None


def add_entries(database: Database, entries: Iterable[MemoryEntry]) -> int:
    """Store human translations in a memory, replacing those of the same sources; return their number.

    Raises:
        DatabaseError: they cannot be written.
    """
    count, known = 0, dict[tuple[str, str], int]()
    with database.transaction() as connection:
        for entry in entries:
            if (languages := entry[:2]) not in known:
                [known[languages]] = connection.execute(
                    "INSERT INTO pairs (source_language, target_language, edition) VALUES (?, ?, ?) "
                    "ON CONFLICT DO UPDATE SET edition = excluded.edition RETURNING id",
                    (*languages, secrets.token_hex(8)),
                ).fetchone()
            connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (known[languages], *entry[2:]))
            count += 1
    return count


def translations(database: Database, people_only: bool) -> Iterator[MemoryEntry]:
    """Yield all translations of a memory: human ones first, then the model's, whose sources are texts as sent to the model.

    Raises:
        DatabaseError: it cannot be read.
    """
    columns = "source_language, target_language, source, target"
    queries = [f"SELECT {columns} FROM entries JOIN pairs ON pair = id ORDER BY pair"]
    if not people_only:
        queries.append(f"SELECT DISTINCT {columns} FROM answers JOIN origins ON origin = id")
    with database.errors():
        for query in queries:
            yield from (MemoryEntry(*row) for row in database.connection.execute(query))


def _fits(own: Sequence[str], wanted: Sequence[str]) -> bool:
    return all(not code or is_same_language(mine, code) for mine, code in zip(own, wanted, strict=True))
