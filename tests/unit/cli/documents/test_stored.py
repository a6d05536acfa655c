"""Journals and memories: databases, stored translations and document records."""

import sqlite3
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych_cli.documents.stored import Database, DatabaseError, DocumentRecords, StoredTranslations, pack, unpack
from triptych_documents.sentences import Alignment, SentenceRequest, SentenceTranslation
from triptych_embedded.sentences import TranslatorIdentity, digest

IDENTITY = TranslatorIdentity("en-de", "1", "int8", "ab", "en", "de")
ALIGNED = Alignment([(0, 3), (4, 7), (7, 7)], [(0, 4), (4, 6)], [[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])
TRANSLATIONS = {
    SentenceRequest("one"): SentenceTranslation("eins"),
    SentenceRequest("one", aligned=True): SentenceTranslation("eins", ALIGNED),
    SentenceRequest("two" * 1_000): SentenceTranslation("zwei", truncated=True),
}


def filled(path: Path, identity: TranslatorIdentity = IDENTITY) -> None:
    with Database(path) as database:
        stored = StoredTranslations(database, identity)
        for request, translation in TRANSLATIONS.items():
            stored.add(request, translation)
        stored.flush()


def found(path: Path, identity: TranslatorIdentity = IDENTITY) -> dict[SentenceRequest, SentenceTranslation]:
    with Database(path) as database:
        return dict(StoredTranslations(database, identity).find([*TRANSLATIONS, SentenceRequest("three")]))


@pytest.mark.parametrize(
    "change",
    [
        {"model": "de-en"},
        {"version": "2"},
        {"precision": "fp32"},
        {"bundle": "cd"},
        {"target_language": "fr"},
        {"decoding": {"beam_size": 4}},
    ],
)
def test_translations_are_found_only_for_the_same_identity(tmp_path: Path, change: dict[str, Any]) -> None:
    other = replace(IDENTITY, **change)
    filled(tmp_path / "memory")
    assert found(tmp_path / "memory") == TRANSLATIONS
    assert found(tmp_path / "memory", other) == {}
    filled(tmp_path / "memory", other)
    assert found(tmp_path / "memory", other) == TRANSLATIONS


def test_all_flushed_translations_are_stored(tmp_path: Path) -> None:
    requests = [SentenceRequest(str(number)) for number in range(1_234)]
    with Database(tmp_path / "memory") as database:
        stored = StoredTranslations(database, IDENTITY)
        for request in requests:
            stored.add(request, SentenceTranslation(f"<{request.text}>"))
        stored.flush()
        stored.add(SentenceRequest("more"), SentenceTranslation("not flushed"))
    with Database(tmp_path / "memory") as database:
        again = StoredTranslations(database, IDENTITY).find([*requests, SentenceRequest("more")])
    assert again == {request: SentenceTranslation(f"<{request.text}>") for request in requests}


floats = st.floats(0, 1, width=32, allow_subnormal=False)  # sessions in this process have the processor flush such
spans = st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 2**31)), max_size=5)


@given(spans, spans, st.data())
def test_alignments_are_packed_exactly(
    source: list[tuple[int, int]], target: list[tuple[int, int]], data: st.DataObject
) -> None:
    row = st.lists(floats, min_size=len(source), max_size=len(source))
    weights = data.draw(st.lists(row, min_size=len(target), max_size=len(target)))
    alignment = Alignment(source, target, weights)
    assert unpack(pack(alignment)) == alignment


def test_a_journal_belongs_to_one_job(tmp_path: Path) -> None:
    with Database(tmp_path / "journal", alone=True), pytest.raises(DatabaseError, match="is in use by another job"):
        Database(tmp_path / "journal", alone=True)


def test_other_files_are_rejected_and_not_changed(tmp_path: Path) -> None:
    text, strange, newer = tmp_path / "text", tmp_path / "strange", tmp_path / "newer"
    text.write_text("no database at all, and long enough to be sure of that" * 100)
    filled(newer)
    for path, statement in ((strange, "CREATE TABLE cats (name TEXT)"), (newer, "PRAGMA user_version = 2")):
        connection = sqlite3.connect(path)
        connection.execute(statement)
        connection.close()
    for path, problem in (
        (text, "not a database"),
        (strange, "not a journal or translation memory of Triptych"),
        (newer, "of version 2, this release has 1"),
    ):
        before = path.read_bytes()
        with pytest.raises(DatabaseError, match=problem):
            Database(path)
        assert path.read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE answers SET alignment = x'00'",
        f"UPDATE answers SET alignment = x'{zlib.compress(b'').hex()}'",
        "UPDATE answers SET target = CAST(x'FF' AS TEXT)",
        "UPDATE documents SET summary = '{'",
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = 'no table' WHERE name = 'pairs'",
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = CAST(x'FF' AS TEXT) WHERE name = 'pairs'",
    ],
)
def test_damaged_files_are_errors(tmp_path: Path, statement: str) -> None:
    path, target, request = tmp_path / "journal", tmp_path / "a.txt", SentenceRequest("one", aligned=True)
    target.write_text("abc")
    with Database(path) as database:
        stored = StoredTranslations(database, IDENTITY)
        stored.add(request, SentenceTranslation("eins", Alignment([(0, 3)], [(0, 4)], [[1.0]])))
        stored.flush()
        DocumentRecords(database, "settings").add(target, "source", "text", digest("abc"), {})
        database.connection.executescript(statement)

    def read() -> None:
        with Database(path) as again:
            StoredTranslations(again, IDENTITY).find([request])
            DocumentRecords(again, "settings").find(target, "source", "text")

    with pytest.raises(DatabaseError, match="journal: is damaged; restore a copy of it, or delete it"):
        read()


@pytest.mark.parametrize("name", ["a.txt", "not UTF-8 \udcff.txt"])
def test_a_record_is_valid_while_source_settings_format_and_target_are_the_same(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    with Database(tmp_path / "journal") as database:
        records = DocumentRecords(database, "settings")
        assert records.find(target, "source", "text") is None
        records.add(target, "source", "text", digest("abc"), {"units": 3})
        assert records.find(target, "source", "text") is None
        target.write_text("abc")
        assert records.find(target, "source", "text") == {"units": 3}
        assert records.find(target, "another", "text") is None
        assert records.find(target, "source", "html") is None
        assert DocumentRecords(database, "other").find(target, "source", "text") is None
        assert DocumentRecords(database, "other").owns(target)
        target.write_text("edited")
        assert records.find(target, "source", "text") is None
        assert not records.owns(target)
