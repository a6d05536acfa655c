"""Small documents with two sentences in every supported format."""

from collections.abc import Callable

from ...unit.documents.formats.office import docx, epub, member, odt, pptx, shape, xlsx

Make = Callable[[str, str], bytes]


def text(template: str) -> Make:
    """Build a document from a template with the placeholders `A;` and `B;`."""
    return lambda one, two: template.replace("A;", one).replace("B;", two).encode()


DOCUMENTS: dict[str, Make] = {
    "text": text("A;\n\nB;\n"),
    "markdown": text("# A;\n\n- B;\n\n```\ncode;\n```\n"),
    "html": text("<!DOCTYPE html>\n<html><body><h1>A;</h1><p class=x>B;</p><script>let a;</script></body></html>\n"),
    "docx": lambda one, two: docx("".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in (one, two))),
    "pptx": lambda one, two: pptx(shape(one), shape(two)),
    "xlsx": lambda one, two: xlsx("".join(f"<si><t>{text}</t></si>" for text in (one, two))),
    "odt": lambda one, two: odt(f"<text:p>{one}</text:p><text:p>{two}</text:p>"),
    "epub": lambda one, two: epub(f"<p>{one}</p>", f"<p>{two}</p>"),
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
    "qt-ts": text(
        '<!DOCTYPE TS><TS language="de"><context><message><source>A;</source></message>'
        '<message><source>B;</source><translation type="unfinished"/></message></context></TS>\n'
    ),
    "xcstrings": text('{"sourceLanguage": "en", "strings": {"A;": {}, "B;": {"localizations": {}}}}\n'),
    "json": text('{"a": "A;", "b": ["B;", 1.50]}\n'),
    "yaml": text('a: A;\nb: # a comment\n  - "B;"\n'),
    "csv": text("1,A;\n2,B;\n"),
    "tsv": text("1\tA;\n2\tB;\n"),
}


MEMBERS = {
    "docx": ("word/document.xml",),
    "pptx": ("ppt/slides/slide1.xml", "ppt/slides/slide2.xml"),
    "xlsx": ("xl/sharedStrings.xml",),
    "odt": ("content.xml",),
    "epub": ("OEBPS/two.xhtml", "OEBPS/one 1.xhtml"),
}


def text_of(name: str, content: bytes) -> str:
    """Return the content of a document with its markup."""
    return "".join(member(content, each) for each in MEMBERS[name]) if name in MEMBERS else content.decode()
