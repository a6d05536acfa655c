"""Human translations from TMX 1.4b files (Translation Memory eXchange) and memories; they take precedence over the model's.

TMX files are read as a stream: they may be larger than the memory of this machine.
"""

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from triptych_cli.documents.stored import Database
from triptych_documents.encoding import surrogate
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.formats.bilingual import MemoryEntry
from triptych_text.languages import parse_language

CHUNK_BYTES = 1 << 16
ANY = "*all*"  # as the source language of a header
PLAIN = ("hi",)  # inline elements that are not markup of the text


def read_tmx(path: Path, dropped: Counter[str]) -> Iterator[MemoryEntry]:
    """Yield the pairs of a file: the text in the source language with each of the others.

    Args:
        dropped: pairs that cannot be used are counted here, by reason.

    Raises:
        DamagedDocumentError: the file is not well-formed, not TMX, or declares entities.
        OSError: it cannot be read.
    """
    reader = _Reader(path, dropped)
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield from reader.feed(chunk, is_last=False)
    yield from reader.feed(b"", is_last=True)


def dropped_lines(dropped: Mapping[Path, Counter[str]]) -> Iterator[str]:
    """Yield a line for each file of which entries were dropped."""
    for file, counts in dropped.items():
        if total := counts.total():
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.most_common())
            yield f"{file}: {total:,} {'entry' if total == 1 else 'entries'} dropped: {reasons}"


def is_same_language(one: str, other: str) -> bool:
    """Compare language codes: a script or region must match if both name one; `de` is any German."""
    first, second = parse_language(one), parse_language(other)
    if first is None or second is None:
        return one.lower() == other.lower()
    marks = ((first.script, second.script), (first.territory, second.territory))
    return first.language == second.language and all(a == b or not (a and b) for a, b in marks)


@dataclass(slots=True)
class _TranslationUnit:
    source_language: str
    texts: dict[str, str | None] = field(default_factory=dict)  # by language; None: with markup
    language: str = ""
    pieces: list[str] | None = None  # of the segment that is being read
    is_plain: bool = True

    def entries(self, dropped: Counter[str]) -> Iterator[MemoryEntry]:
        wanted = self.source_language.lower()
        sources = [one for one in self.texts if wanted in ("", ANY) or is_same_language(one, wanted)]
        if not sources:
            dropped[f"without a text in {self.source_language}, the source language"] += max(len(self.texts) - 1, 1)
            return
        source = min(sources, key=lambda one: (not (self.texts[one] or "").strip(), one.lower() != wanted))  # else the first
        own = self.texts[source]
        for language, text in self.texts.items():
            if language == source:
                continue
            if own is None or text is None:
                dropped["with inline markup"] += 1
            elif not own.strip() or not text.strip():
                dropped["empty"] += 1
            else:
                yield MemoryEntry(source, language, own, text)


class _Reader:
    def __init__(self, path: Path, dropped: Counter[str]) -> None:
        self._path, self._dropped = path, dropped
        self._source_language = ""
        self._unit: _TranslationUnit | None = None
        self._found: list[MemoryEntry] = []
        self._is_tmx = False
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.EntityDeclHandler = self._refuse

    def feed(self, chunk: bytes, is_last: bool) -> list[MemoryEntry]:
        try:
            self._parser.Parse(chunk, is_last)
        except expat.ExpatError as error:
            raise DamagedDocumentError(f"line {error.lineno}: {expat.ErrorString(error.code)}", str(self._path)) from error
        found, self._found = self._found, []
        return found

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._is_tmx and name != "tmx":
            raise DamagedDocumentError(f"the root element is {name!r}, not 'tmx'", str(self._path))
        self._is_tmx = True
        if name == "header":
            self._source_language = attributes.get("srclang", "")
        elif name == "tu":
            self._unit = _TranslationUnit(attributes.get("srclang", self._source_language))
        elif self._unit is None:
            return
        elif name == "tuv":
            self._unit.language = attributes.get("xml:lang", attributes.get("lang", ""))
        elif name == "seg":
            self._unit.pieces, self._unit.is_plain = [], True
        elif self._unit.pieces is not None and name not in PLAIN:
            self._unit.is_plain = False

    def _text(self, text: str) -> None:
        if self._unit is not None and self._unit.pieces is not None:
            self._unit.pieces.append(text)

    def _end(self, name: str) -> None:
        unit = self._unit
        if unit is None:
            return
        if name == "seg" and unit.pieces is not None:
            unit.texts[unit.language] = "".join(unit.pieces) if unit.is_plain else None
            unit.pieces = None
        elif name == "tu":
            self._found += unit.entries(self._dropped)
            self._unit = None

    def _refuse(self, name: str, *_: object) -> None:
        raise DamagedDocumentError(f"declares the entity {name!r}, which is not allowed", str(self._path))


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
        # An edition changes with the entries of its pair.
        self.editions: dict[int, str] = {pair: edition for pair, edition, *own in rows if _fits(own, languages)}

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
