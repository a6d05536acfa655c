"""Character encodings."""

import codecs
from contextlib import suppress

import pytest

from triptych_documents.encoding import Encoding, decode, surrogate
from triptych_documents.errors import DamagedDocumentError, DocumentError, OptionError


@pytest.mark.parametrize(
    ("mark", "name"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
        (b"", "utf-8"),
    ],
)
def test_a_byte_order_mark_sets_the_encoding_and_stays(mark: bytes, name: str) -> None:
    data = mark + "Grüße\r\n".encode(name)
    text, encoding = decode(data, declared="latin-1" if mark else "")
    assert text == "Grüße\r\n"
    assert encoding == Encoding(name, mark)
    assert encoding.encode(text) == data


def test_the_given_encoding_overrides_the_declared_one() -> None:
    assert decode("ä".encode("cp1252"), "windows-1252", "utf-8")[0] == "ä"
    assert decode("ä".encode("cp1252"), declared="ISO-8859-1")[0] == "ä"
    assert decode(codecs.BOM_UTF16_BE + "ä".encode("utf-16-be"), "utf-16") == ("ä", Encoding("utf-16-be", codecs.BOM_UTF16_BE))
    assert decode("ä".encode("utf-16-le"), "utf-16") == ("ä", Encoding("utf-16-le"))
    assert decode(codecs.BOM_UTF8 + b"a", "utf-8-sig") == ("a", Encoding("utf-8", codecs.BOM_UTF8))


def test_invalid_bytes_are_reported_with_their_line() -> None:
    with pytest.raises(DamagedDocumentError, match=r"^line 2: byte 0xE9 at 5 is not valid utf-8; save the document"):
        decode(b"one\nd\xe9j\xe0\n")


@pytest.mark.parametrize("name", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_byte_order_mark_needs_a_name(name: str) -> None:
    data = "“Hello”".encode(name)
    assert decode(data, name)[0] == "“Hello”"
    with pytest.raises(DamagedDocumentError, match=r"^line 1: zero bytes, .* utf-16-le if there is no byte order mark"):
        decode(data)


def test_irreversible_bytes_are_rejected() -> None:
    with pytest.raises(DamagedDocumentError, match="cannot write back unchanged"):
        decode("ä".encode("utf-7") + b"+-+-+AOQ", "utf-7")


@pytest.mark.parametrize("name", ["utf-99", "rot13", "base64", "a\0b"])
def test_unknown_encodings_raise_the_matching_error(name: str) -> None:
    with pytest.raises(OptionError, match="encoding"):
        decode(b"a", name)
    with pytest.raises(DamagedDocumentError):
        decode(b"a", declared=name)


@pytest.mark.parametrize("name", ["utf" + "-" * 50 + "8", "x" * 1_000_000, "kept_9", "kept 9", "utf--8"])
def test_python_keeps_no_name_of_an_encoding_but_its_own(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    asked: list[str] = []
    lookup = codecs.lookup
    monkeypatch.setattr(codecs, "lookup", lambda name: asked.append(name) or lookup(name))
    with suppress(OptionError):
        decode(b"a", name)
    assert asked in ([], ["utf_8"])


def test_unencodable_characters_are_reported_or_escaped() -> None:
    latin = Encoding("iso8859-1")
    with pytest.raises(DocumentError, match=r"^line 3: '—' \(U\+2014\) does not exist in .* iso8859-1"):
        latin.encode("a\nb\nc — d")
    assert latin.escaped("ä — b", lambda one: f"&#{ord(one)};") == "ä &#8212; b"
    assert latin.has("ä")
    assert not latin.has("—")


def test_lone_surrogates_are_found() -> None:
    assert surrogate("a\ud83db") == "\ud83d"
    assert surrogate("a\U0001f600b") == surrogate("ascii") == ""
