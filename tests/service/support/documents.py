"""Small documents with two sentences in every supported format."""

import io
import zipfile
from collections.abc import Callable

Make = Callable[[str, str], bytes]

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
OFFICE = "urn:oasis:names:tc:opendocument:xmlns"
ODT_TYPE = "application/vnd.oasis.opendocument.text"


def zipped(**members: str) -> bytes:
    """Build a ZIP package; the first member is not compressed."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as package:
        for index, (name, content) in enumerate(members.items()):
            package.writestr(name, content, zipfile.ZIP_DEFLATED if index else zipfile.ZIP_STORED)
    return file.getvalue()


def docx(one: str, two: str) -> bytes:
    types = (
        f'<?xml version="1.0" encoding="UTF-8"?><Types xmlns="{PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Override PartName="/word/document.xml" '
        'ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
    )
    rels = (
        f'<?xml version="1.0" encoding="UTF-8"?><Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="rId1" '
        'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
        'Target="word/document.xml"/></Relationships>'
    )
    paragraphs = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in (one, two))
    document = f'<?xml version="1.0" encoding="UTF-8"?><w:document xmlns:w="{WORD}"><w:body>{paragraphs}</w:body></w:document>'
    return zipped(**{"[Content_Types].xml": types, "_rels/.rels": rels, "word/document.xml": document})


def odt(one: str, two: str) -> bytes:
    manifest = (
        f'<?xml version="1.0" encoding="UTF-8"?><manifest:manifest xmlns:manifest="{OFFICE}:manifest:1.0">'
        f'<manifest:file-entry manifest:full-path="/" manifest:media-type="{ODT_TYPE}"/>'
        '<manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/></manifest:manifest>'
    )
    content = (
        f'<?xml version="1.0" encoding="UTF-8"?><office:document-content xmlns:office="{OFFICE}:office:1.0" '
        f'xmlns:text="{OFFICE}:text:1.0" office:version="1.2"><office:body><office:text>'
        f"<text:p>{one}</text:p><text:p>{two}</text:p></office:text></office:body></office:document-content>"
    )
    return zipped(**{"mimetype": ODT_TYPE, "content.xml": content, "META-INF/manifest.xml": manifest})


def text(template: str) -> Make:
    """Build a document from a template with the placeholders `A;` and `B;`."""
    return lambda one, two: template.replace("A;", one).replace("B;", two).encode()


DOCUMENTS: dict[str, Make] = {
    "text": text("A;\n\nB;\n"),
    "markdown": text("# A;\n\n- B;\n\n```\ncode;\n```\n"),
    "html": text("<!DOCTYPE html>\n<html><body><h1>A;</h1><p class=x>B;</p><script>let a;</script></body></html>\n"),
    "docx": docx,
    "odt": odt,
    "srt": text("1\n00:00:01,000 --> 00:00:02,000\nA;\n\n2\n00:00:03,000 --> 00:00:04,000\nB;\n"),
    "vtt": text("WEBVTT\n\n00:01.000 --> 00:02.000\nA;\n\n00:03.000 --> 00:04.000\nB;\n"),
    "po": text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "A;"\nmsgstr ""\n\nmsgid "B;"\nmsgstr ""\n'
    ),
    "xliff": text(
        '<?xml version="1.0" encoding="UTF-8"?>\n<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">'
        '<file original="a" source-language="en" target-language="de" datatype="plaintext"><body>'
        '<trans-unit id="1"><source>A;</source></trans-unit><trans-unit id="2"><source>B;</source></trans-unit>'
        "</body></file></xliff>\n"
    ),
    "json": text('{"a": "A;", "b": ["B;", 1.50]}\n'),
    "yaml": text('a: A;\nb: # a comment\n  - "B;"\n'),
    "csv": text("1,A;\n2,B;\n"),
    "tsv": text("1\tA;\n2\tB;\n"),
}


def text_of(name: str, content: bytes) -> str:
    """Return the content of a document with its markup."""
    if not content.startswith(b"PK"):
        return content.decode()
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        return package.read("word/document.xml" if name == "docx" else "content.xml").decode()
