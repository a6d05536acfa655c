"""XML tokens, encodings and escaping."""

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych_documents.errors import DamagedDocumentError, DocumentError
from triptych_documents.formats.shared.xml import (
    MAX_DEFAULTS,
    XmlTokenKind,
    attribute_spans,
    decoded,
    encoded,
    tokens,
    with_attribute,
    without_attribute,
    writable,
    written_attribute,
    written_text,
)

PAGE = (
    '<?xml version="1.0"?>\n<!--<!DOCTYPE--><!DOCTYPE a SYSTEM "<!DOCTYPE" [<!ELEMENT a ANY><!-- x -->]>\n'
    '<a xmlns:q="u" q:x="1>2">é&amp;x&foo;y<b/><c></c><![CDATA[z\nz]]><?pi x?> t&#10;\r\n𝄞<![CDATA[]]></a>\n'
)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\t\n\r&<>]\"'"))


def raw(text: str) -> list[tuple[str, str]]:
    """Return kind and text of all tokens."""
    return [(token.kind.name, text[token.start : token.end]) for token in tokens(text)]


def test_every_character_belongs_to_one_token() -> None:
    assert raw(PAGE) == [
        ("INSTRUCTION", '<?xml version="1.0"?>'),
        ("SPACE", "\n"),
        ("COMMENT", "<!--<!DOCTYPE-->"),
        ("DOCTYPE", '<!DOCTYPE a SYSTEM "<!DOCTYPE" [<!ELEMENT a ANY><!-- x -->]>'),
        ("SPACE", "\n"),
        ("START", '<a xmlns:q="u" q:x="1>2">'),
        ("TEXT", "é&amp;x"),
        ("REFERENCE", "&foo;"),
        ("TEXT", "y"),
        ("EMPTY", "<b/>"),
        ("START", "<c>"),
        ("END", "</c>"),
        ("CDATA", "<![CDATA[z\nz]]>"),
        ("INSTRUCTION", "<?pi x?>"),
        ("TEXT", " t&#10;\r\n𝄞"),
        ("CDATA", "<![CDATA[]]>"),
        ("END", "</a>"),
        ("SPACE", "\n"),
    ]


def test_tokens_have_names_attributes_and_positions() -> None:
    start, text, *_, last, _, _, _ = (
        token for token in tokens(PAGE) if token.kind not in (XmlTokenKind.SPACE, XmlTokenKind.COMMENT)
    )
    assert text.kind is XmlTokenKind.DOCTYPE
    found = {token.kind: token for token in tokens(PAGE)}
    assert found[XmlTokenKind.EMPTY].name == "b"
    assert [token.attributes for token in tokens(PAGE) if token.name == "a"] == [{"{u}x": "1>2"}, {}]
    assert [token.text for token in tokens(PAGE) if token.kind in (XmlTokenKind.TEXT, XmlTokenKind.CDATA)] == [
        "é&x",
        "y",
        "z\nz",
        " t\n\n𝄞",
        "",
    ]
    assert (found[XmlTokenKind.EMPTY].line, found[XmlTokenKind.EMPTY].depth, found[XmlTokenKind.END].depth) == (3, 1, 0)
    assert start.kind is last.kind is XmlTokenKind.INSTRUCTION


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<a>", "not well-formed XML"),
        ("", "not well-formed XML"),
        ("<a>&x;</a>", "undefined entity"),
        ("<a>\ud800</a>", "half a surrogate pair"),
        ("<a>" * 2_000 + "</a>" * 2_000, "deeper than 1000"),
        ('<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', "declares the entity 'x'"),
        ('<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><a>&x;</a>', "declares the entity 'x'"),
        ('<!DOCTYPE a [<!ENTITY % x SYSTEM "file:///etc/hostname"> %x;]><a/>', "declares the entity 'x'"),
    ],
)
def test_damaged_and_dangerous_documents_are_rejected(text: str, problem: str) -> None:
    with pytest.raises(DamagedDocumentError, match=problem):
        tokens(text)


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ("<a>ü</a>".encode(), "utf-8"),
        (codecs.BOM_UTF8 + "<a>ü</a>".encode(), "utf-8"),
        (codecs.BOM_UTF16_LE + "<a>ü</a>".encode("utf-16-le"), "utf-16-le"),
        ("<a>ü</a>".encode("utf-16-be"), "utf-16-be"),
        ("<?xml version='1.0' encoding='ISO-8859-1'?><a>ü</a>".encode("latin-1"), "iso8859-1"),
        ("<?xml version='1.0' encoding='Shift_JIS'?><a>日本</a>".encode("shift_jis"), "shift_jis"),
        ("<?xml version='1.0' encoding='UTF-16'?><a>ü</a>".encode(), "utf-8"),  # which its bytes deny
    ],
)
def test_encodings_round_trip(data: bytes, encoding: str) -> None:
    text, found = decoded(data)
    assert found.name == encoding
    assert encoded(text, found) == data
    assert tokens(text)[-1].kind is XmlTokenKind.END


def test_unencodable_characters_become_references() -> None:
    _, encoding = decoded(b"<?xml version='1.0' encoding='ascii'?><a/>")
    assert encoded("<a>€𝄞</a>", encoding) == b"<a>&#8364;&#119070;</a>"


@pytest.mark.parametrize("name", ["no-such", "punycode", "rot13"])
def test_unknown_encodings_are_rejected(name: str) -> None:
    with pytest.raises(DamagedDocumentError, match="not a known character encoding"):
        decoded(f"<?xml version='1.0' encoding='{name}'?><a/>".encode())


@given(TEXTS)
def test_any_text_round_trips(text: str) -> None:
    [_, *found, _] = tokens(f"<a>{written_text(text)}</a>")
    assert "".join(token.text for token in found) == text


@given(TEXTS, st.sampled_from("\"'"))
def test_any_attribute_round_trips(text: str, quote: str) -> None:
    assert tokens(f"<a b={quote}{written_attribute(text, quote)}{quote}/>")[0].attributes == {"b": text}


def test_forbidden_characters_are_reported() -> None:
    with pytest.raises(DocumentError, match=r"U\+0001"):
        written_text("a\x01")
    assert writable("a\x01b\ufffe") == "ab"


def test_attributes_are_replaced_added_and_removed() -> None:
    tag = "<a b = 'x>y' q:c=\"\" />"
    assert attribute_spans(tag) == {"b": (8, 11), "q:c": (18, 18)}
    assert with_attribute(tag, "b", "it's") == "<a b = 'it&apos;s' q:c=\"\" />"
    assert with_attribute(tag, "d", '"') == '<a b = \'x>y\' q:c="" d="&quot;" />'
    assert with_attribute("<a>", "d", "e") == '<a d="e">'
    assert without_attribute(tag, "b") == '<a q:c="" />'
    assert without_attribute(tag, "z") == tag


def test_declared_defaults_are_not_copied() -> None:
    document = '<!DOCTYPE a [<!ATTLIST b c CDATA "default" d CDATA #IMPLIED>]><a><b/><b d="own"/></a>'
    assert [dict(token.attributes) for token in tokens(document) if token.name == "b"] == [{}, {"d": "own"}]


def test_many_declared_defaults_are_rejected() -> None:
    declared = "".join(f'<!ATTLIST a x{number} CDATA "y">' for number in range(MAX_DEFAULTS + 1))
    with pytest.raises(DamagedDocumentError, match=f"line 1: declares more than {MAX_DEFAULTS} default values"):
        tokens(f"<!DOCTYPE a [{declared}]><a/>")
