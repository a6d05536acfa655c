"""DOCX reader."""

import re

import pytest
from hypothesis import given

from triptych_documents.errors import DamagedDocumentError, DocumentError, UnknownFormatError
from triptych_documents.format import ReadOptions
from triptych_documents.formats.docx.reader import read
from triptych_documents.unit import Code, Role

from .office import TEXT, W, assert_writable, changed, docx, member, round_trip, signs, units_of, zipped

DRAWN = "<w:drawing><w:txbxContent>{}</w:txbxContent></w:drawing>"
BEGIN, SEPARATE, END = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end"))


def run(text: str, properties: str = "", space: str = ' xml:space="preserve"') -> str:
    return f"<w:r>{f'<w:rPr>{properties}</w:rPr>' if properties else ''}<w:t{space}>{text}</w:t></w:r>"


def field(instruction: str, result: str) -> str:
    return f"{BEGIN}<w:r><w:instrText>{instruction}</w:instrText></w:r>{SEPARATE}{result}{END}"


def units(body: str, **parts: str) -> list[str]:
    return units_of(read, docx(body, parts))


def paragraphs(*contents: str) -> str:
    return "".join(f"<w:p><w:pPr><w:jc/></w:pPr>{content}</w:p>" for content in contents)


def written(content: str, language: str = "") -> str:
    """Return the content of a paragraph after its text was capitalized."""
    document = read(docx(paragraphs(content)), ReadOptions(target_language=language))
    found = re.search("</w:pPr>(.*)</w:p>", member(changed(document), "word/document.xml"))
    assert found
    return found[1]


BOLD, ITALIC = "<w:b/>", "<w:i/>"
READ = [
    (run("Text"), ["Text"]),
    (run("Te") + '<w:proofErr w:type="spellStart"/><w:bookmarkStart w:id="1" w:name="_GoBack"/>' + run("xt"), ["Text"]),
    (run("Te", '<w:lang w:val="en-GB"/>') + run("xt", "<w:noProof/>"), ["Text"]),
    (run("Te", BOLD) + run("xt", '<w:b w:val="1"/><w:bCs/>'), ["Text"]),
    (run("A ") + run("bold", BOLD) + run(" word"), ["A {1bold}1 word"]),
    (run("All but ", BOLD) + run("one", ITALIC) + run(" are bold", BOLD), ["All but {1one}1 are bold"]),
    (run("bold", BOLD) + run(" ") + run("bold", BOLD) + run(" and much more text"), ["{1bold bold}1 and much more text"]),
    (run("A text ") + run(" ", '<w:u w:val="single"/>') + run(" end"), ["A text {1 }1 end"]),
    (run("A ") + f'<w:hyperlink r="1">{run("li")}{run("nk", BOLD)}</w:hyperlink>' + run("."), ["A {1li{2nk}2}1."]),
    (run("A ") + f"<w:hyperlink>{run('link', '<w:u/>')}</w:hyperlink>" + run("."), ["A {1link}1."]),
    (f"<w:hyperlink>{run('link', BOLD)}</w:hyperlink>", ["link"]),
    (f"<w:r><w:tab/></w:r>{run('  Text ', BOLD)}{run(' ')}<w:r><w:footnoteReference/></w:r>", ["Text"]),
    ("<w:r><w:t>a</w:t><w:br/><w:t>b</w:t><w:tab/><w:t>c</w:t></w:r>", ["a{1:\n}b{2:\t}c"]),
    (run(" a ", space="") + run("b"), ["ab"]),
    ("<w:r><w:t>a</w:t><w:noBreakHyphen/><w:t>b</w:t><w:softHyphen/><w:t>c&amp;</w:t></w:r>", ["a\u2011bc&"]),
    (run("a\n   b\u00adc"), ["a bc"]),
    (run("Page ") + field("PAGE", run("3")) + run("."), ["Page {1:3}."]),
    (run("Page ") + f'<w:fldSimple w:instr=" NUMPAGES ">{run("9")}</w:fldSimple>' + run("."), ["Page {1:9}."]),
    (run("a ") + field("IF", field("PAGE", run("3")) + run("b")) + run(" c"), ["a {1:3b} c"]),
    (run("See ") + field('HYPERLINK "x"', run("this")) + run("."), ["See {1this}1."]),
    (run("a") + f"{BEGIN}<w:r><w:instrText>XE a</w:instrText></w:r>{END}" + run("b"), ["a{1:}b"]),
    (run("a ") + run("secret", "<w:vanish/>") + run("b"), ["a {1:}b"]),
    (run("a ") + f"<w:del><w:r><w:delText>old</w:delText></w:r></w:del><w:ins>{run('new')}</w:ins>", ["a {1:}{2new}2"]),
    (f"{run('a ')}<w:ruby><w:rubyPr/><w:rt>{run('ruby')}</w:rt><w:rubyBase>{run('base')}</w:rubyBase></w:ruby>", ["a base"]),
    (f"<w:r><w:ruby><w:rubyPr/><w:rt>{run('ruby')}</w:rt><w:rubyBase>{run('base')}</w:rubyBase></w:ruby></w:r>", ["base"]),
    (run("a ") + f"<w:sdt><w:sdtPr><w:tag/></w:sdtPr><w:sdtContent>{run('b')}</w:sdtContent></w:sdt>" + run("c"), ["a {1b}1c"]),
    (run("in ") + f"<w:smartTag><w:smartTagPr/>{run('Paris')}</w:smartTag>" + run("."), ["in {1Paris}1."]),
    (run("a ") + f'<w:bookmarkStart w:id="1"/>{run("b")}<w:bookmarkEnd w:id="1"/>' + run("c"), ["a {1b}1c"]),
    (run("a ") + '<w:bookmarkStart w:id="1"/>' + run("b"), ["a {1:}b"]),
    (
        run("a ")
        + '<m:oMath xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"><m:t>x</m:t></m:oMath>'
        + run("b"),
        ["a {1:}b"],
    ),
    (f"<w:r><w:tab/></w:r>{run(' ')}{field('PAGE', run('3'))}", []),
    (
        run("x")
        + '<w:bookmarkStart w:id="7"/>'
        + run("a")
        + '<w:commentRangeStart w:id="1"/>'
        + run("b")
        + '<w:bookmarkEnd w:id="7"/>'
        + run("c")
        + '<w:commentRangeEnd w:id="1"/>'
        + run("d"),
        ["x{1:}a{2b{3:}c}2d"],
    ),
]


@pytest.mark.parametrize(("content", "expected"), READ)
def test_a_paragraph_is_read(content: str, expected: list[str]) -> None:
    assert units(paragraphs(content)) == expected


def test_fields_span_paragraphs() -> None:
    first = (
        f"{BEGIN}<w:r><w:instrText>TOC</w:instrText></w:r>{SEPARATE}"
        + run("First")
        + "<w:r><w:tab/></w:r>"
        + field("PAGEREF", run("1"))
    )
    assert units(paragraphs(first, run("Second") + END, run("Text"))) == ["First{4:\t}{5:1}", "Second", "Text"]
    instruction = f"{BEGIN}<w:r><w:instrText>IF</w:instrText></w:r>"
    assert units(paragraphs(instruction, run("not text"), SEPARATE + run("text") + END)) == ["text"]


def test_paragraphs_in_text_boxes_are_separate_units() -> None:
    box = DRAWN.format(paragraphs(run("inner ") + run("bold", BOLD) + run(" text")))
    body = paragraphs(run("before ") + f"<w:r>{box}</w:r>" + run("after"))
    assert units(body) == ["before {1:}after", "inner {1bold}1 text"]
    new = member(changed(read(docx(body), ReadOptions())), "word/document.xml")
    assert re.sub("<.*?>", "|", new).replace("|", "") == "BEFORE INNER BOLD TEXTAFTER"


MC = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'


def test_runs_in_alternatives_are_separate_units() -> None:
    link = f"<w:hyperlink>{run('a link')}</w:hyperlink>"
    alternatives = f"<mc:AlternateContent {MC}><mc:Choice>{run('new')}</mc:Choice><mc:Fallback>{link}</mc:Fallback>"
    body = paragraphs(run("before ") + f"{alternatives}</mc:AlternateContent>" + run(" after"))
    assert units(body) == ["before {1:} after", "new", "a link"]
    new = member(changed(read(docx(body), ReadOptions())), "word/document.xml")
    assert re.findall("<(w:t).*?>(.*?)</w:t>", new) == [("w:t", text) for text in ("BEFORE ", "NEW", "A LINK", " AFTER")]


def test_namespaces_that_a_run_declares_are_kept() -> None:
    symbol = '<w:r xmlns:x="y"><w:rPr xmlns:z="v"><z:b/></w:rPr><x:sym/></w:r>'
    assert '<w:r xmlns:x="y"><w:rPr xmlns:z="v"><z:b/></w:rPr><x:sym/></w:r>' in written(run("a ") + symbol + run(" b"))
    units(paragraphs(run("a ") + symbol + run(" b")))


def test_field_marks_stay_in_runs_of_their_own() -> None:
    content = run("a ") + field("PAGE", run("1")) + run(" b")
    assert written(content) == content.replace("a ", "A ").replace(" b", " B")


def test_text_in_styles_for_code_stays() -> None:
    named = '<w:style w:styleId="{}"><w:name w:val="{}"/><w:basedOn w:val="{}"/></w:style>'
    styles = (
        ("Keyword", "keyword", "Verbatim"),
        ("Verbatim", "Verbatim Char", ""),
        ("HTMLVorformatiert", "HTML Preformatted", "x"),
    )
    parts = {"styles": f"<w:styles {W}>{''.join(named.format(*one) for one in styles)}</w:styles>"}
    code = f'<w:p><w:pPr><w:pStyle w:val="HTMLVorformatiert"/></w:pPr>{run("x = 1")}</w:p>'
    inline = run("Call ") + run("sort()", '<w:rStyle w:val="Keyword"/>') + run(" first.")
    choice = f"<mc:AlternateContent {MC}><mc:Choice>{run('y = 2')}</mc:Choice></mc:AlternateContent>"
    assert units(code.replace("</w:p>", f"{choice}</w:p>") + paragraphs(inline), **parts) == ["Call {1:sort()} first."]
    assert units(paragraphs(inline), styles="damaged") == ["Call {1sort()}1 first."]


def test_all_stories_are_read() -> None:
    one = "<w:{0} {1}>{2}</w:{0}>"
    parts = {
        "header": one.format("hdr", W, paragraphs(run("head"))),
        "footnotes": one.format("footnotes", W, paragraphs(run("foot"))),
        "comments": one.format("comments", W, paragraphs(run("comment"))),
        "glossary": one.format("glossaryDocument", W, paragraphs(run("not this"))),
    }
    body = f"<w:tbl><w:tr><w:tc>{paragraphs(run('cell'))}</w:tc></w:tr></w:tbl>"
    assert units(body, **parts) == ["cell", "foot", "comment", "head"]


def test_the_title_is_read() -> None:
    data = docx(paragraphs(run("text")))
    members = {"docProps/core.xml": '<p xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>R&amp;D</dc:title></p>'}
    names = ("[Content_Types].xml", "_rels/.rels", "word/document.xml")
    data = zipped({**{name: member(data, name) for name in names}, **members})
    document = read(data, ReadOptions())
    assert [unit.text for unit in document.units] == ["text", "R&D"]
    assert "<dc:title>A&lt;B</dc:title>" in member(document.render({1: ("A<B",)}), "docProps/core.xml")


def test_a_paragraph_is_written() -> None:
    content = run("A ", BOLD) + run("b", ITALIC) + "<w:r><w:tab/></w:r>" + run("&lt;c>", BOLD)
    kept = ' xml:space="preserve"'
    assert written(content) == (
        f"<w:r><w:rPr><w:b/></w:rPr><w:t{kept}>A </w:t></w:r><w:r><w:rPr><w:i/></w:rPr><w:t>B</w:t></w:r>"
        "<w:r><w:tab/></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>&lt;C></w:t></w:r>"
    )


@pytest.mark.parametrize(
    ("language", "properties", "expected"),
    [
        ("de", BOLD, '<w:b/><w:lang w:val="de-DE"/>'),
        (
            "pt-BR",
            '<w:lang w:val="en-US" w:eastAsia="ja-JP"/><w:specVanish/>',
            '<w:lang w:val="pt-BR" w:eastAsia="ja-JP"/><w:specVanish/>',
        ),
        ("ja", "<w:oMath/>", '<w:lang w:eastAsia="ja-JP"/><w:oMath/>'),
        ("ar", "<w:lang></w:lang>", '<w:lang w:bidi="ar-EG"/>'),
        ("sr-Latn", "", '<w:lang w:val="sr-Latn-RS"/>'),
        ("", BOLD, BOLD),
    ],
)
def test_translated_text_is_in_its_language(language: str, properties: str, expected: str) -> None:
    assert written(run("a", properties), language) == f"<w:r><w:rPr>{expected}</w:rPr><w:t>A</w:t></w:r>"


@given(TEXT, TEXT, TEXT)
def test_any_text_can_be_written(first: str, bold: str, last: str) -> None:
    assert_writable(read, docx(paragraphs(run("a ") + run("b", BOLD) + "<w:r><w:br/></w:r>" + run("c"))), first, bold, last)


def test_codes_that_would_break_the_document_are_rejected() -> None:
    link = f"<w:hyperlink>{run('b')}</w:hyperlink>"
    document = read(docx(paragraphs(run("a ") + link + run("c") + link.replace("b", "d") + run("e"))), ReadOptions())
    one, end, two, last = document.units[0].codes
    for pieces in (
        ["a", one],
        ["a", one, two, end, last],
        [end, one, two, last],
        [Code("", Role.ALONE, 9), one, end, two, last],
    ):
        with pytest.raises(DocumentError, match=r"word/document.xml, paragraph 1: .*codes"):
            document.render({0: pieces})
    with pytest.raises(DocumentError, match=r"U\+0001"):
        document.render({0: ["\x01", one, end, two, last]})


@pytest.mark.parametrize(
    ("data", "error", "problem"),
    [
        (zipped({"a.txt": "text"}), DamagedDocumentError, "no Word document"),
        (docx("<w:p>"), DamagedDocumentError, "word/document.xml: line 1"),
        (docx("", kind="application/vnd.ms-excel.sheet.macroEnabled.main+xml"), UnknownFormatError, "only Word documents"),
        (docx("<w:p>" * 300 + "</w:p>" * 300), DamagedDocumentError, "deeper than 256"),
        (docx("").replace(b"PK\1\2", b"PK\1\0"), DamagedDocumentError, "not a zip archive"),
        (docx(paragraphs(BEGIN * 65 + run("text"))), DamagedDocumentError, "deeper than 64"),
    ],
)
def test_damaged_documents_are_rejected(data: bytes, error: type[DocumentError], problem: str) -> None:
    with pytest.raises(error, match=problem):
        read(data, ReadOptions())


def test_signatures_are_found() -> None:
    data = docx(paragraphs(run("text")))
    names = ("[Content_Types].xml", "_rels/.rels", "word/document.xml")
    data = zipped({**{name: member(data, name) for name in names}, "_xmlsignatures/sig1.xml": "<a/>"})
    assert "signed" in read(data, ReadOptions()).findings[0].message
    assert read(docx(""), ReadOptions()).findings == ()


def test_diagrams_are_read() -> None:
    bold, line = '<a:rPr lang="en-US" b="1"/>', '<a:rPr lang="en-US" u="sng"><a:latin/></a:rPr>'
    content = f"<a:r>{bold}<a:t>Step </a:t></a:r><a:r><a:rPr b='1' dirty='0'/><a:t>one</a:t></a:r>"
    content += f"<a:br/><a:r>{line}<a:t>two</a:t></a:r>"
    paragraph = f"<a:p><a:pPr/>{content}<a:fld><a:t>9</a:t></a:fld><a:endParaRPr/></a:p>"
    root = f'<d xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main">{paragraph}<a:p/></d>'
    data = docx("", {"diagramData": root})
    document = read(data, ReadOptions(target_language="de"))
    assert [signs(unit.pieces) for unit in document.units] == ["Step one{1:\n}{2two}2{3:9}"]
    new = member(changed(document), "word/diagramData.xml")
    runs = '<a:r><a:rPr lang="de-DE" b="1"/><a:t>STEP ONE</a:t></a:r><a:br/>'
    runs += '<a:r><a:rPr lang="de-DE" u="sng"><a:latin/></a:rPr><a:t>TWO</a:t></a:r>'
    assert f"<a:p><a:pPr/>{runs}<a:fld><a:t>9</a:t></a:fld><a:endParaRPr/></a:p>" in new
    round_trip(read, data)
