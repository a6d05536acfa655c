"""Limits for documents that would take much more memory than they have bytes."""

import threading
from collections.abc import Callable

import pytest

from triptych_documents.errors import DamagedDocumentError, OptionError
from triptych_documents.format import ReadOptions
from triptych_documents.formats import tabular
from triptych_documents.formats.markdown import tokens
from triptych_documents.formats.office import parts
from triptych_documents.formats.shared.text_document import UnitLimit
from triptych_documents.interruption import InterruptionError, interruptible

from .office import docx, odt
from .roundtrips import read, texts

MOST = ReadOptions(max_units=20)


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("text", "ab cd\n\n" * 21, "more than 20 segments"),
        ("text", "\n" * 81, "81 lines, the maximum is 80"),
        ("markdown", "a\n\n" * 21, "42 lines, the maximum is 40"),
        ("markdown", "*a* " * 30, "60 times < or .* the maximum is 40"),
        ("html", "<p>a" * 21, "more than 20 segments"),
        ("html", "<b>" * 81, "81 times < or {, the maximum is 80"),
        ("csv", "ab,cd\n" * 11, "more than 20 segments"),
        ("tsv", "ab\tcd\n" * 11, "more than 20 segments"),
        ("json", "[" + ",".join(['"Some text"'] * 21) + "]", "more than 20 segments"),
        ("json", "[" + ",".join("0" * 90) + "]", "89 times , or :, the maximum is 80"),
        ("yaml", "- Some text\n" * 21, "more than 20 segments"),
        ("yaml", "[" + ",".join("0" * 90) + "]", "89 times ,, the maximum is 80"),
        ("srt", "\n" * 81, "81 lines"),
        ("vtt", "WEBVTT\n\n" + "<b>" * 81, "81 times <"),
        ("po", 'msgid "a"\nmsgstr ""\n\n' * 21, "21 times msgid, the maximum is 20"),
        ("xliff", "<a/>" * 81, "81 times <"),
        ("qt-ts", "<a/>" * 81, "81 times <"),
        ("qt-ts", "<TS>" + "<message><source>a</source></message>" * 20 + "</TS>", "82 times <"),
        ("xcstrings", "{" + '"a":0,' * 81, "162 times , or :"),
        (
            "xcstrings",
            '{"sourceLanguage":"en","strings":{' + ",".join(['"Some text":{}'] * 21) + "}}",
            "more than 20 segments",
        ),
    ],
)
def test_large_documents_are_rejected_while_reading(name: str, data: str, found: str) -> None:
    with pytest.raises(DamagedDocumentError, match=rf"{found}.*; split the document"):
        read(name, data, MOST)


def test_documents_at_the_limit_are_read() -> None:
    assert len(texts(read("csv", "ab,cd\n" * 10, MOST))) == 20
    assert len(texts(read("html", "<p>a</p>" * 20, MOST))) == 20
    assert len(texts(read("csv", "ab,cd\n" * 100))) == 200
    UnitLimit(ReadOptions()).check_marks(b"\n" * 1_000, b",")


def test_records_with_too_many_cells_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabular, "MAX_CELLS", 10)
    for name, cells in (("csv", "a," * 11), ("csv", '"\n",a,' * 6), ("tsv", "a\t" * 11), ("tsv", '"a"\t' * 11)):
        with pytest.raises(DamagedDocumentError, match="a record has more than 10 cells"):
            read(name, cells)
    assert len(texts(read("csv", "a,b,c,d,e,f\n" * 10))) == 60


def test_missing_column_numbers_are_rejected_at_the_end() -> None:
    assert texts(read("csv", "a,b\nc,d,e\n", ReadOptions(columns=("3",)))) == ["e"]
    with pytest.raises(OptionError, match=r"no column 9{100}; the table has 2"):
        read("csv", "a,b\n", ReadOptions(columns=("9" * 5_000,)))
    assert len(read("csv", f"{'n' * 10_000},b\nc,d\n", ReadOptions(header=True)).units[0].where) < 200


def test_members_with_too_many_tags_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    data = docx("<w:p><w:r><w:t>One</w:t></w:r></w:p>")
    assert texts(read("docx", data)) == ["One"]
    monkeypatch.setattr(parts, "MAX_TAGS", 5)
    with pytest.raises(DamagedDocumentError, match="tags, the maximum is 5"):
        read("docx", data)


@pytest.mark.parametrize(
    ("name", "make", "paragraph"), [("docx", docx, "<w:p><w:r><w:t>a</w:t></w:r></w:p>"), ("odt", odt, "<text:p>a</text:p>")]
)
def test_office_documents_are_rejected_while_reading(name: str, make: Callable[[str], bytes], paragraph: str) -> None:
    assert len(texts(read(name, make(paragraph * 20), MOST))) == 20
    with pytest.raises(DamagedDocumentError, match="more than 20 segments, the maximum; split the document"):
        read(name, make(paragraph * 21), MOST)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("text", "ab cd"),
        ("markdown", "ab"),
        ("markdown", "[ab](c)"),
        ("html", "<p>ab"),
        ("csv", "ab,cd\n"),
        ("json", '["Some text"]'),
        ("yaml", "- Some text\n"),
        ("xliff", "<xliff>"),
    ],
)
def test_reading_can_be_interrupted(name: str, data: str) -> None:
    stop = threading.Event()
    stop.set()
    with interruptible(stop), pytest.raises(InterruptionError):
        read(name, data, ReadOptions())


@pytest.mark.parametrize("sign", ["![", "[", "[[a]", "*[", "![a `b ", "<a ["])
def test_unclosed_markup_takes_linear_time(sign: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(length: int) -> int:
        count = 0

        def checkpoint() -> None:
            nonlocal count
            count += 1

        monkeypatch.setattr(tokens, "checkpoint", checkpoint)
        read("markdown", (sign * length)[:length], ReadOptions())
        return count

    assert steps(2_000) < 2.5 * steps(1_000) < 50 * 2_000
