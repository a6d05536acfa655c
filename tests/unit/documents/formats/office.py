"""Small office documents for tests."""

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence

from hypothesis import strategies as st

from triptych_documents.format import Document, ReadOptions
from triptych_documents.unit import Code, Piece, Role, joined

Reader = Callable[[bytes, ReadOptions], Document]
TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\u00ad\ufffe\uffff"), min_size=1
).filter(str.strip)
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_RELATIONS = 'xmlns="http://schemas.openxmlformats.org/package/2006/relationships"'
_TYPES = 'xmlns="http://schemas.openxmlformats.org/package/2006/content-types"'
_DEFAULTS = "".join(
    f'<Default Extension="{ending}" ContentType="{kind}"/>'
    for ending, kind in (
        ("rels", "application/vnd.openxmlformats-package.relationships+xml"),
        ("xml", "application/xml"),
        ("png", "image/png"),
    )
)
_TYPE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_OPEN_XML = "application/vnd.openxmlformats-officedocument"
_MAIN = f"{_OPEN_XML}.wordprocessingml.document.main+xml"
_SLIDES = f"{_OPEN_XML}.presentationml.presentation.main+xml"
_A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
_P = f'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" {_A}'
_X = f'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" {_A}'
_ODF = "".join(
    f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{last}:1.0"'
    for name, last in (
        ("office", "office"),
        ("text", "text"),
        ("style", "style"),
        ("fo", "xsl-fo-compatible"),
        ("draw", "drawing"),
        ("table", "table"),
        ("presentation", "presentation"),
    )
)
MANIFEST = 'xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"'
ODT_TYPE = "application/vnd.oasis.opendocument.text"


def zipped(members: Mapping[str, str | bytes], stored: Sequence[str] = ()) -> bytes:
    """Create an archive of these members, in this order."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, (2020, 1, 2, 3, 4, 6))
            archive.writestr(info, data, zipfile.ZIP_STORED if name in stored else zipfile.ZIP_DEFLATED)
    return out.getvalue()


def member(data: bytes, name: str) -> str:
    """Return a member of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(name).decode()


def package(main: str, kind: str, members: Mapping[str, str], links: Mapping[str, Mapping[str, str]]) -> bytes:
    """Create a package of Office Open XML; `links` maps parts to the kinds of the parts that they refer to."""
    relations = {"": {main: "officeDocument", "docProps/core.xml": "core-properties"}, **links}
    files = {
        "[Content_Types].xml": f'<Types {_TYPES}>{_DEFAULTS}<Override PartName="/{main}" ContentType="{kind}"/></Types>',
        "docProps/core.xml": '<p xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title/></p>',
        **members,
    }
    for part, targets in relations.items():
        folder, _, name = part.rpartition("/")
        named = "".join(
            f'<Relationship Id="r{index}" Type="{_TYPE}/{each}" Target="/{target}"/>'
            for index, (target, each) in enumerate(targets.items())
        )
        files[f"{folder}/_rels/{name}.rels".lstrip("/")] = f"<Relationships {_RELATIONS}>{named}</Relationships>"
    return zipped(files)


def docx(body: str, parts: Mapping[str, str] | None = None, kind: str = _MAIN) -> bytes:
    """Create a Word document."""
    main = "word/document.xml"
    members = {
        "word/media/image1.png": "".join(map(chr, range(128))),
        main: f"<w:document {W}><w:body>{body}<w:sectPr/></w:body></w:document>",
        **{f"word/{name}.xml": root for name, root in (parts or {}).items()},
    }
    return package(main, kind, members, {main: {f"word/{name}.xml": name for name in parts or {}}})


def shape(text: str, placeholder: str = "") -> str:
    """Return a shape with one paragraph."""
    paragraph = f'<a:p><a:r><a:rPr lang="en-US"/><a:t>{text}</a:t></a:r></a:p>'
    return f"<p:sp><p:nvPr>{placeholder}</p:nvPr><p:txBody>{paragraph}</p:txBody></p:sp>"


def pptx(
    *slides: str,
    parts: dict[str, tuple[str, str]] | None = None,
    kind: str = _SLIDES,
) -> bytes:
    """Create a presentation. `parts`: kinds and contents of the parts that the first slide refers to, by name."""
    main = "ppt/presentation.xml"
    names = [f"ppt/slides/slide{number}.xml" for number in range(1, len(slides) + 1)]
    members = {
        main: f"<p:presentation {_P}/>",
        **{name: f"<p:sld {_P}>{slide}</p:sld>" for name, slide in zip(names, slides, strict=True)},
    }
    members |= {name: f"<p:part {_P}>{content}</p:part>" for name, (_, content) in (parts or {}).items()}
    links = {main: dict.fromkeys(reversed(names), "slide"), names[0]: {name: each for name, (each, _) in (parts or {}).items()}}
    return package(main, kind, members, links)


def xlsx(strings: str, sheet: str = "", parts: dict[str, tuple[str, str]] | None = None) -> bytes:
    """Create a workbook. `parts`: kinds and contents of the parts that the sheet refers to, by name."""
    main, first = "xl/workbook.xml", "xl/worksheets/sheet1.xml"
    members = {
        main: f"<workbook {_X}/>",
        "xl/sharedStrings.xml": f"<sst {_X}>{strings}</sst>",
        first: f"<worksheet {_X}>{sheet}</worksheet>",
        **{name: f"<part {_X}>{content}</part>" for name, (_, content) in (parts or {}).items()},
    }
    links = {
        main: {first: "worksheet", "xl/sharedStrings.xml": "sharedStrings"},
        first: {name: kind for name, (kind, _) in (parts or {}).items()},
    }
    return package(main, f"{_OPEN_XML}.spreadsheetml.sheet.main+xml", members, links)


def odt(
    body: str, styles: str = "", automatic: str = "", kind: str = ODT_TYPE, objects: Mapping[str, str] | None = None
) -> bytes:
    """Create an OpenDocument text, or with another `kind` a presentation or spreadsheet."""
    types = {"/": kind, "content.xml": "text/xml", "styles.xml": "text/xml"}
    files = "".join(f'<m:file-entry m:full-path="{path}" m:media-type="{media}"/>' for path, media in types.items())
    content = f"<office:automatic-styles>{automatic}</office:automatic-styles>"
    content += f"<office:body><office:text>{body}</office:text></office:body>"
    return zipped(
        {
            "mimetype": kind,
            "content.xml": f"<office:document-content{_ODF}>{content}</office:document-content>",
            "styles.xml": f"<office:document-styles{_ODF}>{styles}</office:document-styles>",
            **{
                f"{name}/content.xml": f"<office:document-content{_ODF}>{text}</office:document-content>"
                for name, text in (objects or {}).items()
            },
            "META-INF/manifest.xml": f"<m:manifest {MANIFEST}>{files}</m:manifest>",
        },
        stored=["mimetype"],
    )


_PAGE = (
    '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en"><head><title/></head><body>{}</body></html>'
)
_CONTAINER = '<c xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfile full-path="OEBPS/a.opf"/></c>'
_BOOK = """<package xmlns="http://www.idpf.org/2007/opf">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>A title</dc:title><dc:language>en</dc:language></metadata>
<manifest><item id="one" href="one%201.xhtml" media-type="application/xhtml+xml"/>
<item id="two" href="two.xhtml" media-type="application/xhtml+xml"/>
<item id="ncx" href="a.ncx" media-type="application/x-dtbncx+xml"/>
<item id="style" href="style.css" media-type="text/css"/></manifest>
<spine><itemref idref="two"/></spine></package>"""
_NCX = """<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><docTitle><text>Contents</text></docTitle>
<docAuthor><text>Mary White</text></docAuthor></ncx>"""


def epub(two: str, one: str, **others: str) -> bytes:
    """Create a book of two pages, of which only `two` is in the reading order; `others` are members of META-INF."""
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": _CONTAINER,
            **{f"META-INF/{name}.xml": text for name, text in others.items()},
            "OEBPS/a.opf": _BOOK,
            "OEBPS/one 1.xhtml": _PAGE.format(one),
            "OEBPS/two.xhtml": _PAGE.format(two),
            "OEBPS/a.ncx": _NCX,
            "OEBPS/style.css": "p { color: red }",
        },
        stored=["mimetype"],
    )


def signs(pieces: Sequence[Piece]) -> str:
    """Show pieces as text: pairs as `{1 }1`, other codes as `{2:what it shows}`."""
    return "".join(piece if isinstance(piece, str) else _sign(piece) for piece in pieces)


def _sign(code: Code) -> str:
    if code.role is Role.ALONE:
        return f"{{{code.pair}:{code.shown}}}"
    return f"{{{code.pair}" if code.role is Role.OPEN else f"}}{code.pair}"


def changed(document: Document, change: Callable[[str], str] = str.upper) -> bytes:
    """Render with every text changed."""
    units = enumerate(document.units)
    return document.render(
        {index: tuple(piece if isinstance(piece, Code) else change(piece) for piece in unit.pieces) for index, unit in units}
    )


def round_trip(read: Reader, data: bytes) -> bytes:
    """Check that a changed document reads as intended, and that an unchanged one keeps its bytes."""
    document = read(data, ReadOptions(target_language="de"))
    assert document.render({index: unit.pieces for index, unit in enumerate(document.units)}) == data
    new = changed(document)
    again = read(new, ReadOptions(target_language="de"))
    assert [signs(unit.pieces).upper() for unit in document.units] == [signs(unit.pieces).upper() for unit in again.units]
    assert [unit.text.upper() for unit in document.units] == [unit.text for unit in again.units]
    return new


def units_of(read: Reader, data: bytes) -> list[str]:
    """Return the units after a round trip."""
    round_trip(read, data)
    return [signs(unit.pieces) for unit in read(data, ReadOptions()).units]


def assert_writable(read: Reader, data: bytes, first: str, bold: str, last: str) -> None:
    """Check that these texts round-trip through a paragraph with a pair and a break."""
    document = read(data, ReadOptions())
    opening, closing, alone = document.units[0].codes
    most = "most of the text" * len(bold)  # its style becomes that of the paragraph
    pieces = joined([f"x{first}", opening, bold, closing, most, alone, f"{last}z"])
    assert signs(read(document.render({0: pieces}), ReadOptions()).units[0].pieces) == signs(pieces)
