"""OpenDocument reader."""

import re

import pytest
from hypothesis import given

from triptych_documents.errors import DamagedDocumentError, DocumentError, UnknownFormatError
from triptych_documents.format import ReadOptions
from triptych_documents.formats.office.archive import Archive
from triptych_documents.formats.opendocument import read

from .office import MANIFEST, ODT_TYPE, TEXT, assert_writable, changed, member, odt, round_trip, signs, units_of, zipped

STYLE = '<style:style style:name="{}" style:family="text"{}><style:text-properties {}/></style:style>'
AUTOMATIC = "".join(
    (
        STYLE.format("Bold", "", 'fo:font-weight="bold"'),
        STYLE.format("Bold2", "", 'fo:font-weight="bold" fo:language="en"'),
        STYLE.format("Noise", "", 'fo:language="fr" fo:country="FR"'),
        STYLE.format("Line", "", 'style:text-underline-style="solid"'),
    )
)


def span(text: str, style: str = "Bold") -> str:
    return f'<text:span text:style-name="{style}">{text}</text:span>'


def units(body: str, styles: str = "") -> list[str]:
    return units_of(read, odt(body, styles, AUTOMATIC))


def written(content: str, automatic: str = AUTOMATIC) -> str:
    """Return the content of a paragraph after its text was capitalized."""
    document = read(odt(f"<text:p>{content}</text:p>", "", automatic), ReadOptions())
    found = re.search("<text:p>(.*)</text:p>", member(changed(document), "content.xml"))
    assert found
    return found[1]


NOTE = "<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>{}</text:p></text:note-body></text:note>"
RUBY = "<text:ruby><text:ruby-base>base</text:ruby-base><text:ruby-text>ruby</text:ruby-text></text:ruby>"
READ = [
    ("Text", ["Text"]),
    (" A \n\t text" + span(" here ") + " and there ", ["A text{1 here }1and there"]),
    ('a<text:s/>b <text:s text:c="2"/>c', ["a b   c"]),
    ('a<text:s text:c="999999999"/>b', ["a{1:}b"]),
    ("a<text:tab/>b<text:line-break/>c<text:soft-page-break/>d", ["a{1:\t}b{2:\n}cd"]),
    ("A " + span("bold") + " word", ["A {1bold}1 word"]),
    ("A " + span("te", "Noise") + "xt", ["A text"]),
    (span("bo") + span("ld", "Bold2") + " and more", ["{1bold}1 and more"]),
    ("A text with " + span("a" + span("b", "Line")), ["A text with {1a}1{2b}2"]),
    (span("Nearly all is bold") + " here", ["Nearly all is bold{1 here}1"]),
    (span("bold") + " " + span("bold") + " and much more text", ["{1bold bold}1 and much more text"]),
    ("A text " + span("<text:s/>", "Line") + "<text:s/>end", ["A text {1 }1 end"]),
    (f"A <text:a><office:event-listeners/>{span('link')}</text:a>.", ["A {1link}1."]),
    ('a <text:bookmark-start text:name="x"/>b<text:bookmark-end text:name="x"/> c', ["a {1b}1 c"]),
    ('a <text:change-start text:change-id="x"/>b<text:change text:change-id="y"/> c', ["a {1:}b{2:} c"]),
    ("Page <text:page-number>3</text:page-number>.", ["Page {1:3}."]),
    (f"Text{NOTE.format('note')} and more.", ["Text{1:} and more.", "note"]),
    ("a <office:annotation><text:p>seen</text:p></office:annotation>b", ["a {1:}b", "seen"]),
    ("a <draw:frame><draw:text-box><text:p>inner</text:p></draw:text-box></draw:frame>b", ["a {1:}b", "inner"]),
    (f"a {RUBY}", ["a base"]),
    (f"<text:tab/>{span('<text:s/>')} Text<text:bookmark/> ", ["Text"]),
    (f"a {NOTE.format('note')} b", ["a {1:} b", "note"]),
    ('a <draw:frame text:anchor-type="as-char"/> b <draw:frame text:anchor-type="char"/> c', ["a {1:} b {2:}c"]),
    ("Te<!-- no text -->xt<![CDATA[ & so]]>", ["Text & so"]),
    ("<text:s/><text:tab/><text:page-number>3</text:page-number>", []),
]


@pytest.mark.parametrize(("content", "expected"), READ)
def test_a_paragraph_is_read(content: str, expected: list[str]) -> None:
    assert units(f"<text:p>{content}</text:p>") == expected


def test_everything_except_deleted_text_is_read() -> None:
    body = (
        "<text:tracked-changes><text:deletion><text:p>old</text:p></text:deletion></text:tracked-changes><text:h>Head</text:h>"
    )
    body += "<text:list><text:list-item><text:p>item</text:p></text:list-item></text:list>"
    body += "<text:index-title-template>Contents</text:index-title-template>"
    page = "<style:master-page><style:header><text:p>top</text:p></style:header></style:master-page>"
    assert units(body, f"<office:master-styles>{page}</office:master-styles>") == ["Head", "item", "Contents", "top"]


def test_text_in_styles_for_code_stays() -> None:
    automatic = "".join(
        f'<style:style style:name="{name}" style:family="{family}" style:parent-style-name="{parent}"/>'
        for name, family, parent in (
            ("P2", "paragraph", "P1"),
            ("P1", "paragraph", "Preformatted_20_Text"),
            ("P2", "text", "x"),
        )
    )
    call = f"Call {span('sort()', 'Source_20_Text')} or {span('sorted()', 'Source_Text')} {span('it', 'P2')}."
    body = f'<text:p text:style-name="P2">x = 1</text:p><text:p>{call}</text:p>'
    document = read(odt(f'{body}<text:p text:style-name="Example">Prose</text:p>', "", automatic), ReadOptions())
    assert [signs(unit.pieces) for unit in document.units] == ["Call {1:sort()} or {2:sorted()} {3it}3.", "Prose"]
    noted = f"Call {span('x' + NOTE.format('Note'), 'Source_20_Text')} now"
    assert written(noted).endswith("</text:span><text:s/>NOW")


def test_a_paragraph_is_written() -> None:
    content = f"<text:s/>a <text:s/>{span('b')}<text:tab/>&lt;c"
    bold = '<text:span text:style-name="Bold">B</text:span>'
    assert written(content) == f"<text:s/>A <text:s/>{bold}<text:tab/>&lt;C"


def test_spaces_are_written_so_that_they_stay() -> None:
    document = read(odt("<text:p>text</text:p>"), ReadOptions())
    new = member(document.render({0: ("a  b\nc\t \r d",)}), "content.xml")
    assert '<text:p>a <text:s/>b c <text:s text:c="3"/>d</text:p>' in new


def test_styles_get_the_target_language() -> None:
    english = '<style:text-properties fo:language="en" fo:country="US" fo:color="#000"/>'
    default = f'<style:default-style style:family="paragraph">{english}</style:default-style>'
    code = STYLE.format("Code", "", 'fo:language="zxx" fo:country="none"')
    styles = f"<office:styles>{default}{code}</office:styles>"
    data = odt(f"<text:p>{span('text', 'Noise')} {span('bold', 'Bold2')}</text:p>", styles, AUTOMATIC)
    new = changed(read(data, ReadOptions(target_language="pt-BR")))
    assert member(new, "styles.xml") == member(data, "styles.xml").replace('"en" fo:country="US"', '"pt" fo:country="BR"')
    assert 'fo:font-weight="bold" fo:language="pt"' in member(new, "content.xml")
    assert 'fo:language="fr" fo:country="FR"' in member(new, "content.xml")
    assert Archive(changed(read(data, ReadOptions()))).read("styles.xml") == Archive(data).read("styles.xml")


def test_title_and_language_are_translated() -> None:
    meta = (
        '<m xmlns:dc="http://purl.org/dc/elements/1.1/"><o><dc:title>Title</dc:title><dc:language>en-US</dc:language></o></m>'
    )
    whole = odt("<text:p>text</text:p>")
    data = zipped({"mimetype": ODT_TYPE, "content.xml": member(whole, "content.xml"), "meta.xml": meta})
    new = changed(read(data, ReadOptions(target_language="de")))
    assert member(new, "meta.xml") == meta.replace("Title<", "TITLE<").replace("en-US", "de-DE")
    broken = zipped({"mimetype": ODT_TYPE, "content.xml": member(whole, "content.xml"), "meta.xml": "<m>"})
    assert [unit.text for unit in read(broken, ReadOptions()).units] == ["text"]


@given(TEXT, TEXT, TEXT)
def test_any_text_can_be_written(first: str, bold: str, last: str) -> None:
    assert_writable(read, odt(f"<text:p>a {span('b')}<text:line-break/>c</text:p>", "", AUTOMATIC), first, bold, last)


ENTITIES = "<!DOCTYPE a [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><a>&b;</a>"


@pytest.mark.parametrize(
    ("data", "error", "problem"),
    [
        (zipped({"a.txt": "text"}), DamagedDocumentError, "not an OpenDocument file"),
        (odt("<text:p>"), DamagedDocumentError, "content.xml: line 1"),
        (odt("", kind=f"{ODT_TYPE}-master"), UnknownFormatError, "text-master' is not supported"),
        (odt("<text:p>" * 300 + "</text:p>" * 300), DamagedDocumentError, "deeper than 256"),
        (zipped({"mimetype": ODT_TYPE, "content.xml": ENTITIES}), DamagedDocumentError, "entity"),
        (
            zipped(
                {
                    "mimetype": ODT_TYPE,
                    "content.xml": b"\x81\x82",
                    "META-INF/manifest.xml": f"<m:m {MANIFEST}><m:encryption-data/></m:m>",
                }
            ),
            DamagedDocumentError,
            "encrypted with a password",
        ),
    ],
)
def test_damaged_documents_are_rejected(data: bytes, error: type[DocumentError], problem: str) -> None:
    with pytest.raises(error, match=problem):
        read(data, ReadOptions())


def test_signatures_are_found() -> None:
    data = zipped({"content.xml": member(odt("<text:p>a</text:p>"), "content.xml"), "META-INF/documentsignatures.xml": "<a/>"})
    assert "signed" in read(data, ReadOptions()).findings[0].message


def test_values_of_cells_stay() -> None:
    cell = "<table:table-cell {}><text:p>{}</text:p></table:table-cell>"
    cells = cell.format('office:value-type="string"', "A text") + cell.format("", "Another")
    cells += cell.format('office:value-type="float" office:value="3"', "3 pieces")
    cells += cell.format('office:value-type="string" table:formula="of:=[.A1]"', "computed")
    note = "<office:annotation><text:p>A note</text:p></office:annotation>"
    cells += f'<table:table-cell office:value-type="date">{note}<text:p>5 May</text:p></table:table-cell>'
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    data = odt(f"<table:table>{cells}</table:table>", kind=kind, objects={"Object 1": "<text:p>A chart</text:p>"})
    round_trip(read, data)
    assert [unit.text for unit in read(data, ReadOptions()).units] == ["A text", "Another", "A note", "A chart"]


def test_footers_of_slides_are_read() -> None:
    decl = "<presentation:footer-decl>A footer</presentation:footer-decl><draw:page><text:p>A slide</text:p></draw:page>"
    data = odt(decl, kind="application/vnd.oasis.opendocument.presentation")
    round_trip(read, data)
    assert sorted(unit.text for unit in read(data, ReadOptions()).units) == ["A footer", "A slide"]
