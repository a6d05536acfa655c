"""EPUB reader."""

import re

import pytest

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import ReadOptions
from triptych_documents.formats.epub import read

from .office import changed, epub, member, round_trip, signs, zipped

PAGES = "<script src='a.js'/><h1>The second</h1>", '<p>The <b>first</b><a id="x"/> page &amp; more</p>'


def test_pages_contents_and_title_are_read() -> None:
    new = round_trip(read, epub(*PAGES))
    document = read(epub(*PAGES), ReadOptions())
    found = ["The second", "The {0first}0{1:} page & more", "Contents", "A title"]
    assert [signs(unit.pieces) for unit in document.units] == found
    assert document.units[0].where == "OEBPS/two.xhtml, line 1"
    assert '<p>THE <b>FIRST</b><a id="x"/> PAGE &amp; MORE</p>' in member(new, "OEBPS/one 1.xhtml")
    assert 'xml:lang="de"' in member(new, "OEBPS/two.xhtml")
    assert re.findall(r"<dc:(?:title|language)>([^<]*)", member(new, "OEBPS/a.opf")) == ["A TITLE", "de-DE"]
    assert "Mary White" in member(new, "OEBPS/a.ncx")


def test_units_of_all_pages_are_counted() -> None:
    data = epub("<p>One</p>", "<p>Two</p>")
    assert changed(read(data, ReadOptions(max_units=4)))
    with pytest.raises(DamagedDocumentError, match="more than 3 segments, the maximum"):
        read(data, ReadOptions(max_units=3))


def test_encrypted_pages_are_rejected() -> None:
    entry = '<encryption xmlns:e="http://www.w3.org/2001/04/xmlenc#"><e:CipherReference URI="{}"/></encryption>'
    assert len(read(epub(*PAGES, encryption=entry.format("OEBPS/font.otf")), ReadOptions()).units) == 4
    with pytest.raises(DamagedDocumentError, match=r"OEBPS/one 1.xhtml: encrypted \(digital rights management\)"):
        read(epub(*PAGES, encryption=entry.format("OEBPS/one%201.xhtml")), ReadOptions())


@pytest.mark.parametrize(("name", "problem"), [("a.xml", "not an EPUB"), ("META-INF/container.xml", "names no book")])
def test_archives_without_a_book_are_rejected(name: str, problem: str) -> None:
    with pytest.raises(DamagedDocumentError, match=problem):
        read(zipped({name: "<container/>"}), ReadOptions())
