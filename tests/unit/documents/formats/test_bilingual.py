"""TMX and XLIFF files of sentence pairs."""

from collections.abc import Callable, Iterable
from xml.etree import ElementTree

import pytest

from triptych_documents.formats.bilingual import MemoryEntry, tmx, write_tmx, write_xliff
from triptych_documents.sentences import SentencePair

from .roundtrips import read, texts

PAIRS = [
    SentencePair("Tea & <b>milk</b>", "Tee & <b>Milch</b>"),
    SentencePair("a\tb\r\nc", "\x01ä\n]]>"),
    SentencePair(" ", ""),
]
XML = "{http://www.w3.org/XML/1998/namespace}"
Write = Callable[[Iterable[SentencePair], str, str], bytes]


def test_tmx_has_both_texts_with_their_languages() -> None:
    root = ElementTree.fromstring(write_tmx(PAIRS, "en", "de-AT"))
    header = root.find("header")
    assert header is not None
    assert root.attrib == {"version": "1.4"}
    wanted = {"creationtool", "creationtoolversion", "segtype", "o-tmf", "adminlang", "srclang", "datatype"}
    assert wanted <= set(header.attrib)
    assert header.get("srclang") == "en"
    found = [[(variant.get(f"{XML}lang"), variant.findtext("seg")) for variant in unit] for unit in root.iter("tu")]
    assert found == [
        [("en", "Tea & <b>milk</b>"), ("de-AT", "Tee & <b>Milch</b>")],
        [("en", "a\tb\r\nc"), ("de-AT", "ä\n]]>")],
        [("en", " "), ("de-AT", "")],
    ]


def test_memories_are_written_in_pieces() -> None:
    parts = list(tmx(MemoryEntry("en", f"x-{number}", "a", "b") for number in range(3)))
    assert len(parts) == 5
    root = ElementTree.fromstring(b"".join(parts))
    assert [header.get("srclang") for header in root.iter("header")] == ["*all*"]
    assert [variant.get(f"{XML}lang") for variant in root.iter("tuv")] == ["en", "x-0", "en", "x-1", "en", "x-2"]


def test_written_xliff_is_read_as_translated() -> None:
    data = write_xliff(PAIRS, "en", "de")
    assert texts(read("xliff", data)) == []
    root = ElementTree.fromstring(data)
    assert [target.text or "" for target in root.iter("{urn:oasis:names:tc:xliff:document:1.2}target")] == [
        "Tee & <b>Milch</b>",
        "ä\n]]>",
        "",
    ]


@pytest.mark.parametrize("write", [write_tmx, write_xliff])
def test_unknown_languages_are_undetermined(write: Write) -> None:
    assert b'"und"' in write(PAIRS, "", "de")
    assert b"</body>" in write([], "", "")
