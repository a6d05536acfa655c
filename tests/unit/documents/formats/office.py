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
_MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
_ODF = "".join(
    f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{last}:1.0"'
    for name, last in (
        ("office", "office"),
        ("text", "text"),
        ("style", "style"),
        ("fo", "xsl-fo-compatible"),
        ("draw", "drawing"),
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


def docx(body: str, parts: Mapping[str, str] | None = None, kind: str = _MAIN) -> bytes:
    """Create a Word document."""
    relations = "".join(f'<Relationship Id="r{name}" Type="{_TYPE}/{name}" Target="{name}.xml"/>' for name in parts or {})
    return zipped(
        {
            "[Content_Types].xml": f"<Types {_TYPES}>{_DEFAULTS}"
            f'<Override PartName="/word/document.xml" ContentType="{kind}"/></Types>',
            "_rels/.rels": f'<Relationships {_RELATIONS}><Relationship Id="r" Type="{_TYPE}/officeDocument" '
            'Target="word/document.xml"/><Relationship Id="c" Type="x/metadata/core-properties" '
            'Target="docProps/core.xml"/></Relationships>',
            "docProps/core.xml": '<p xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title/></p>',
            "word/media/image1.png": bytes(range(256)),
            "word/document.xml": f"<w:document {W}><w:body>{body}<w:sectPr/></w:body></w:document>",
            "word/_rels/document.xml.rels": f"<Relationships {_RELATIONS}>{relations}</Relationships>",
            **{f"word/{name}.xml": root for name, root in (parts or {}).items()},
        }
    )


def odt(body: str, styles: str = "", automatic: str = "", kind: str = ODT_TYPE) -> bytes:
    """Create an OpenDocument text."""
    types = {"/": kind, "content.xml": "text/xml", "styles.xml": "text/xml"}
    files = "".join(f'<m:file-entry m:full-path="{path}" m:media-type="{media}"/>' for path, media in types.items())
    content = f"<office:automatic-styles>{automatic}</office:automatic-styles>"
    content += f"<office:body><office:text>{body}</office:text></office:body>"
    return zipped(
        {
            "mimetype": kind,
            "content.xml": f"<office:document-content{_ODF}>{content}</office:document-content>",
            "styles.xml": f"<office:document-styles{_ODF}>{styles}</office:document-styles>",
            "META-INF/manifest.xml": f"<m:manifest {MANIFEST}>{files}</m:manifest>",
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


def assert_writable(read: Reader, data: bytes, first: str, bold: str, last: str) -> None:
    """Check that these texts round-trip through a paragraph with a pair and a break."""
    document = read(data, ReadOptions())
    opening, closing, alone = document.units[0].codes
    most = "most of the text" * len(bold)  # its style becomes that of the paragraph
    pieces = joined([f"x{first}", opening, bold, closing, most, alone, f"{last}z"])
    assert signs(read(document.render({0: pieces}), ReadOptions()).units[0].pieces) == signs(pieces)
