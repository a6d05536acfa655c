"""Journals and memories: databases, stored translations and document records."""

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triptych_cli.documents.database import Database, DatabaseError
from triptych_cli.documents.stored import DocumentRecords, StoredTranslations, pack, unpack
from triptych_documents.sentences import Alignment, SentenceRequest, SentenceTranslation
from triptych_embedded.sentences import TranslatorIdentity, digest

IDENTITY = TranslatorIdentity("en-de", "1", "int8", "ab", "en", "de")
ALIGNED = Alignment([(0, 3), (4, 7), (7, 7)], [(0, 4), (4, 6)], [[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])
ANSWERS = {
    SentenceRequest("one"): SentenceTranslation("eins"),
    SentenceRequest("one", prefix="eine"): SentenceTranslation("eine"),
    SentenceRequest("one", aligned=True): SentenceTranslation("eins", ALIGNED),
    SentenceRequest("two" * 1_000): SentenceTranslation("zwei", truncated=True),
}


def filled(path: Path, identity: TranslatorIdentity = IDENTITY) -> None:
    with Database(path) as database:
        answers = StoredTranslations(database, identity)
        for ask, answer in ANSWERS.items():
            answers.add(ask, answer)
        answers.flush()


def found(path: Path, identity: TranslatorIdentity = IDENTITY) -> dict[SentenceRequest, SentenceTranslation]:
    with Database(path) as database:
        return dict(StoredTranslations(database, identity).find([*ANSWERS, SentenceRequest("three")]))


def test_translations_are_found_again(tmp_path: Path) -> None:
    filled(tmp_path / "memory")
    assert found(tmp_path / "memory") == ANSWERS


@pytest.mark.parametrize(
    "other",
    [
        TranslatorIdentity("de-en", "1", "int8", "ab", "en", "de"),
        TranslatorIdentity("en-de", "2", "int8", "ab", "en", "de"),
        TranslatorIdentity("en-de", "1", "fp32", "ab", "en", "de"),
        TranslatorIdentity("en-de", "1", "int8", "cd", "en", "de"),
        TranslatorIdentity("en-de", "1", "int8", "ab", "en", "fr"),
        TranslatorIdentity("en-de", "1", "int8", "ab", "en", "de", {"beam_size": 4}),
    ],
)
def test_translations_of_another_model_language_or_option_are_not_found(tmp_path: Path, other: TranslatorIdentity) -> None:
    filled(tmp_path / "memory")
    assert found(tmp_path / "memory", other) == {}
    filled(tmp_path / "memory", other)
    assert found(tmp_path / "memory", other) == ANSWERS


def test_many_at_once(tmp_path: Path) -> None:
    asks = [SentenceRequest(str(number)) for number in range(1_234)]
    with Database(tmp_path / "memory") as database:
        answers = StoredTranslations(database, IDENTITY)
        for ask in asks:
            answers.add(ask, SentenceTranslation(f"<{ask.text}>"))
        answers.flush()
        again = StoredTranslations(database, IDENTITY).find([*asks, SentenceRequest("more")])
    assert again == {ask: SentenceTranslation(f"<{ask.text}>") for ask in asks}


def test_only_flushed_translations_are_stored(tmp_path: Path) -> None:
    with Database(tmp_path / "memory") as database:
        answers = StoredTranslations(database, IDENTITY)
        answers.add(SentenceRequest("one"), SentenceTranslation("eins"))
        answers.flush()
        answers.add(SentenceRequest("two"), SentenceTranslation("zwei"))
    with Database(tmp_path / "memory") as database:
        assert StoredTranslations(database, IDENTITY).find([SentenceRequest("one"), SentenceRequest("two")]) == {
            SentenceRequest("one"): SentenceTranslation("eins")
        }


floats = st.floats(0, 1, width=32, allow_subnormal=False)  # sessions in this process have the processor flush such
spans = st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 2**31)), max_size=5)


@settings(deadline=None)  # the machine may have other things to do
@given(spans, spans, st.data())
def test_alignments_are_packed_exactly(
    source: list[tuple[int, int]], target: list[tuple[int, int]], data: st.DataObject
) -> None:
    row = st.lists(floats, min_size=len(source), max_size=len(source))
    weights = data.draw(st.lists(row, min_size=len(target), max_size=len(target)))
    alignment = Alignment(source, target, weights)
    assert unpack(pack(alignment)) == alignment


def test_a_journal_is_one_job_s_alone(tmp_path: Path) -> None:
    with Database(tmp_path / "journal", alone=True), pytest.raises(DatabaseError, match="is in use by another job"):
        Database(tmp_path / "journal", alone=True)
    Database(tmp_path / "journal", alone=True).connection.close()


def test_other_files_are_refused_and_stay_as_they_are(tmp_path: Path) -> None:
    text, strange = tmp_path / "text", tmp_path / "strange"
    text.write_text("no database at all, and long enough to be sure of that" * 100)
    with sqlite3.connect(strange) as connection:
        connection.execute("CREATE TABLE cats (name TEXT)")
    connection.close()
    for path, problem in ((text, "not a database"), (strange, "not a journal or translation memory of Triptych")):
        before = path.read_bytes()
        with pytest.raises(DatabaseError, match=problem):
            Database(path)
        assert path.read_bytes() == before


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "memory")
    with sqlite3.connect(tmp_path / "memory") as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(DatabaseError, match="of version 2, this release has 1"):
        Database(tmp_path / "memory")


def test_a_record_counts_while_source_settings_format_and_target_are_the_same(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
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
