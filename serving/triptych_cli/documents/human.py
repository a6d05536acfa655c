"""Human translations from TMX 1.4b files (Translation Memory eXchange) and memories; they take precedence over the model's.

TMX files are read as a stream: they may be larger than the memory of this machine.
"""

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.parsers import expat

from triptych_cli.documents.stored import Database
from triptych_documents.encoding import surrogate
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.formats.bilingual import MemoryEntry
from triptych_text.languages import parse_language

CHUNK_BYTES = 1 << 16
ANY = "*all*"  # as the source language of a header
PLAIN = ("seg", "hi")  # the others are markup of the text


def read_tmx(path: Path, dropped: Counter[str]) -> Iterator[MemoryEntry]:
    """Yield the pairs of a file: the text in the source language with each of the others.

    Args:
        dropped: pairs that cannot be used are counted here, by reason.

    Raises:
        DamagedDocumentError: the file is not well-formed, not TMX, or declares entities.
        OSError: it cannot be read.
    """
    parser, builder = expat.ParserCreate(), ElementTree.TreeBuilder()
    around: list[ElementTree.Element] = []  # elements that are open
    found: list[MemoryEntry] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        if not around and name != "tmx":
            raise DamagedDocumentError(f"the root element is {name!r}, not 'tmx'", str(path))
        around.append(builder.start(name, attributes))

    def end(name: str) -> None:
        element = builder.end(name)
        around.pop()
        if name == "tu":
            header = around[0].find("header")
            declared = element.get("srclang", "" if header is None else header.get("srclang", ""))
            found.extend(_entries(element, declared, dropped))
            around[-1].clear()  # the file may be larger than the memory

    def refuse(name: str, *_: object) -> None:
        raise DamagedDocumentError(f"declares the entity {name!r}, which is not allowed", str(path))

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, builder.data
    parser.EntityDeclHandler = refuse
    with open(path, "rb") as file:
        is_last = False
        while not is_last:
            chunk = file.read(CHUNK_BYTES)
            is_last = not chunk
            try:
                parser.Parse(chunk, is_last)
            except expat.ExpatError as error:
                raise DamagedDocumentError(f"line {error.lineno}: {expat.ErrorString(error.code)}", str(path)) from error
            yield from found
            found.clear()


def _entries(unit: ElementTree.Element, source_language: str, dropped: Counter[str]) -> Iterator[MemoryEntry]:
    """Yield the pairs of a <tu>; `source_language` is the one that it declares."""
    texts: dict[str, str | None] = {}  # by language; None: with markup
    for variant in unit.iter("tuv"):
        for segment in variant.iter("seg"):
            is_plain = all(inner.tag in PLAIN for inner in segment.iter())
            texts[variant.get("xml:lang", variant.get("lang", ""))] = "".join(segment.itertext()) if is_plain else None
    wanted = source_language.lower()
    sources = [one for one in texts if wanted in ("", ANY) or is_same_language(one, wanted)]
    if not sources:
        dropped[f"without a text in {source_language}, the source language"] += max(len(texts) - 1, 1)
        return
    source = min(sources, key=lambda one: (not (texts[one] or "").strip(), one.lower() != wanted))  # else the first
    own = texts[source]
    for language, text in texts.items():
        if language == source:
            continue
        if own is None or text is None:
            dropped["with inline markup"] += 1
        elif not own.strip() or not text.strip():
            dropped["empty"] += 1
        else:
            yield MemoryEntry(source, language, own, text)


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
