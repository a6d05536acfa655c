"""Qt Linguist's .ts: only translations change."""

import difflib
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import ReadOptions

from .roundtrips import read, shown, swapped, texts

GERMAN = ReadOptions(source_language="en", target_language="de")
AGAIN = ReadOptions(source_language="en", target_language="de", retranslate=True)
HEAD = (
    '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE TS>\n<TS version="2.1" language="de">\n<context>\n    <name>A</name>\n'
)
TAIL = "</context>\n</TS>\n"


def message(source: str, translation: str = '<translation type="unfinished"></translation>', numerus: bool = False) -> str:
    said = ' numerus="yes"' if numerus else ""
    place = '<location filename="a.cpp" line="7"/>\n        '
    return f"    <message{said}>\n        {place}<source>{source}</source>\n        {translation}\n    </message>\n"


def whole(*messages: str) -> str:
    return HEAD + "".join(messages) + TAIL


def forms(*contents: str, said: str = "") -> str:
    inner = "".join(f"\n            <numerusform>{content}</numerusform>" for content in contents)
    return f"<translation{said}>{inner}\n        </translation>"


UNFINISHED = ' type="unfinished"'


def turned(data: str, options: ReadOptions = GERMAN) -> str:
    """Render with the case of every unit swapped."""
    changed = swapped(read("qt-ts", data, options), data.encode()).decode()
    etree.fromstring(changed.encode())
    return changed


def added(data: str, options: ReadOptions = GERMAN) -> list[str]:
    """Return added and removed lines after translation."""
    lines = difflib.ndiff(data.split("\n"), turned(data, options).split("\n"))
    return [f"{line[0]} {line[2:].strip()}" for line in lines if line[0] in "+-"]


def given_(data: str, *translations: str, options: ReadOptions = GERMAN) -> str:
    """Render with these texts for the first units."""
    return read("qt-ts", data, options).render({index: (text,) for index, text in enumerate(translations)}).decode()


@pytest.mark.parametrize(
    ("translation", "is_asked"),
    [
        ('<translation type="unfinished"></translation>', True),
        ('<translation type="unfinished"/>', True),
        ('<translation type="unfinished">Alt</translation>', True),
        ("<translation></translation>", True),
        ("", True),
        ("<translation>Gut</translation>", False),
        ('<translation><byte value="x1b"/></translation>', False),
        ('<translation type="vanished">Alt</translation>', False),
        ('<translation type="obsolete"></translation>', False),
    ],
)
def test_messages_without_a_finished_translation_are_translated(translation: str, is_asked: bool) -> None:
    data = whole(message("One thing", translation), message("Two", "<translation>Zwei</translation>"))
    assert texts(read("qt-ts", data, GERMAN)) == ["One thing"] * is_asked
    changed = turned(data)
    assert ("        <translation>oNE THING</translation>" in changed) == is_asked
    assert "<translation>Zwei</translation>" in changed


def test_everything_else_stays() -> None:
    notes = "<comment>One &amp; 2</comment>\n        <extracomment>Three</extracomment>"
    notes += '\n        <translation type="unfinished"></translation>\n        <userdata>Four</userdata>'
    data = whole(message("Hello", notes)) + "<!-- the end -->\n"
    assert added(data) == ['- <translation type="unfinished"></translation>', "+ <translation>hELLO</translation>"]
    document = read("qt-ts", data, GERMAN)
    assert [(unit.where, unit.keeps_space) for unit in document.units] == [("line 8", True)]


def test_a_missing_translation_is_put_behind_the_comments() -> None:
    data = whole(message("Hello", "<comment>A</comment>\n        <userdata>B</userdata>"))
    assert added(data) == ["+ <translation>hELLO</translation>"]
    assert "</comment>\n        <translation>hELLO</translation>\n        <userdata>" in turned(data)
    windows = data.replace("\n", "\r\n")
    assert "</comment>\r\n        <translation>hELLO</translation>\r\n        <userdata>" in turned(windows)


def test_options_of_review() -> None:
    data = whole(
        message("One", "<translation>Eins</translation>"), message("Two", '<translation type="vanished">2</translation>')
    )
    assert texts(read("qt-ts", data, AGAIN)) == ["One"]
    fuzzy = ReadOptions(target_language="de", retranslate=True, mark_fuzzy=True)
    assert added(data, fuzzy) == ["- <translation>Eins</translation>", '+ <translation type="unfinished">oNE</translation>']


def test_texts_are_escaped_like_by_qt() -> None:
    source = "&amp;Open &quot;x&quot; &lt;b&gt;it&apos;s&lt;/b&gt;<byte value=\"x1b\"/> now&#xa0;and<byte value='13'/>\nlater "
    data = whole(message(source))
    document = read("qt-ts", data, GERMAN)
    assert shown(document) == ['⟦&⟧Open "x" ⟦<b>⟧it\'s⟦</b>⟧\x1b now\xa0and\r\nlater']
    wanted = '&amp;oPEN &quot;X&quot; &lt;b&gt;IT&apos;S&lt;/b&gt;<byte value="x1b"/> NOW&#xa0;AND<byte value="xd"/>\nLATER '
    assert f"<translation>{wanted}</translation>" in turned(data)
    assert texts(read("qt-ts", whole(message("<![CDATA[a < b]]> &amp; c<!-- d -->")), GERMAN)) == ["a < b & c"]


def test_characters_that_the_encoding_lacks_are_references() -> None:
    data = whole(message("Hello")).replace("utf-8", "iso-8859-1")
    assert "<translation>Größe &#8364;</translation>" in read("qt-ts", data, GERMAN).render({0: ("Größe €",)}).decode("latin-1")


class TestPlurals:
    @pytest.mark.parametrize(
        ("language", "number"), [("ja", 1), ("hu", 1), ("de", 2), ("pt_BR", 2), ("ru", 3), ("cy", 5), ("ar", 6)]
    )
    def test_a_translation_has_the_forms_of_its_language(self, language: str, number: int) -> None:
        for data in (forms("", said=UNFINISHED), '<translation type="unfinished"/>', ""):
            template = whole(message("%n file(s) in %1", data, numerus=True)).replace(' language="de"', "")
            options = ReadOptions(target_language=language)
            assert texts(read("qt-ts", template, options)) == ["%n file(s) in %1"]
            changed = given_(template, "%n x", options=options)
            assert forms(*["%n x"] * number) in changed
            assert f'<TS version="2.1" language="{language}">' in changed

    def test_a_finished_form_stays(self) -> None:
        data = whole(message("%n files", forms("", "%n Dateien"), numerus=True))
        assert forms("%n x", "%n Dateien") in given_(data, "%n x")
        assert forms("%n x", "%n x") in given_(data, "%n x", options=AGAIN)
        assert forms("%n x", "%n x") in given_(data.replace("<translation>", '<translation type="unfinished">'), "%n x")
        assert texts(read("qt-ts", data.replace("></num", ">eine</num"), GERMAN)) == []

    def test_forms_in_a_file_of_the_language_are_kept(self) -> None:
        data = whole(message("%n files", forms("", "", "", said=UNFINISHED), numerus=True))
        assert forms("x", "x", "x") in given_(data, "x")
        assert forms("x") in given_(data, "x", options=ReadOptions(target_language="ja"))

    def test_variants_of_lengths_are_replaced(self) -> None:
        variants = (
            '<translation variants="yes"><lengthvariant>Lang</lengthvariant><lengthvariant>L</lengthvariant></translation>'
        )
        assert texts(read("qt-ts", whole(message("Long", variants)), GERMAN)) == []
        assert "<translation>lONG</translation>" in turned(whole(message("Long", variants)), AGAIN)


def test_files_in_another_language_stay_unchanged() -> None:
    data = whole(message("One", "<translation>Eins</translation>"), message("Two"))
    french = ReadOptions(target_language="fr")
    document = read("qt-ts", data, french)
    assert texts(document) == []
    assert [finding.message for finding in document.findings] == ["translations are in de, not in fr; nothing was translated"]
    again = turned(data, ReadOptions(target_language="fr-CA", retranslate=True))
    assert '<TS version="2.1" language="fr_CA">' in again
    assert "Eins" not in again
    unused = whole(message("One", '<translation type="vanished">Eins</translation>'), message("Two"))
    assert texts(read("qt-ts", unused, french)) == ["Two"]


def test_languages_are_checked_and_filled_in() -> None:
    data = whole(message("One")).replace('language="de"', 'sourcelanguage="en_US"')
    assert not read("qt-ts", data, GERMAN).findings
    [finding] = read("qt-ts", data, ReadOptions(source_language="fr", target_language="de")).findings
    assert (finding.where, finding.message) == ("line 3", "declares its source to be in en_US, not in fr")
    assert '<TS version="2.1" sourcelanguage="en_US" language="de">' in turned(data)
    assert 'language="de_AT"' in turned(whole(message("One")).replace('"de"', '"de_AT"'))


def test_messages_of_ids_and_of_old_versions() -> None:
    data = '<!DOCTYPE TS><TS>\n<message id="a"><source>One</source></message>\n<message id="b"/>\n'
    data += "<context><name>A</name><message encoding='UTF-8'><source></source></message></context></TS>"
    assert turned(data).startswith('<!DOCTYPE TS><TS language="de">\n<message id="a"><source>One</source><translation>oNE<')
    assert texts(read("qt-ts", data)) == ["One"]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("<!-- a -->\n<manifest/>", "line 2: the root element is manifest, not TS"),
        ("import { a } from 'b';", "line 1, column 1: not well-formed XML"),
        (HEAD, "not well-formed XML"),
        (whole(message("One &copy; two")), "not well-formed XML"),
        (HEAD.replace("TS>", 'TS SYSTEM "a">', 1) + message("One &copy; two") + TAIL, "line 8: &copy; in a source"),
        (whole(message("One <b>two</b>")), "line 8: <b> in a source"),
        (whole(message('One <byte value="x110000"/>')), 'line 8: <byte value="x110000"/> in a source'),
        (whole(message("One <byte/>")), "line 8: <byte/> in a source"),
        (HEAD.replace("TS>", 'TS [<!ENTITY a "b">]>', 1) + TAIL, "declares the entity 'a'"),
    ],
)
def test_damaged_files_are_rejected(data: str, problem: str) -> None:
    with pytest.raises(DamagedDocumentError) as caught:
        read("qt-ts", data, GERMAN)
    assert problem in str(caught.value)


def test_messages_in_messages_are_no_messages() -> None:
    data = whole(message("One", f"<translation>{message('Two')}</translation>"), message("Three"))
    assert texts(read("qt-ts", data, AGAIN)) == ["One", "Three"]
    assert "Two" not in turned(data, AGAIN)


@given(st.text(st.characters(exclude_categories=["Cs", "Cn"]) | st.sampled_from("\n\t\r\"'&<]>\x1b\xa0"), min_size=1))
def test_any_text_can_be_written(text: str) -> None:
    changed = given_(
        whole(message("One"), message("%n", forms("", "", said=UNFINISHED), numerus=True)), f"a{text}b", f"c{text}d"
    )
    etree.fromstring(changed.encode())
    said = etree.fromstring(changed.encode()).iter("translation", "numerusform")
    found = [content_of(element) for element in said if element.text and element.text.strip()]
    assert found == [f"a{text}b", f"c{text}d", f"c{text}d"]


def content_of(element: etree._Element) -> str:
    """Return a text as Qt reads it."""
    return (element.text or "") + "".join(chr(int(byte.get("value")[1:], 16)) + (byte.tail or "") for byte in element)


@pytest.mark.skipif(shutil.which("lrelease") is None, reason="needs Qt's lrelease")
def test_qt_reads_translations(tmp_path: Path) -> None:
    data = whole(message("&amp;Open <byte value='x1b'/>"), message("%n files", forms("", "", said=UNFINISHED), numerus=True))
    file = tmp_path / "a.ts"
    file.write_text(turned(data))
    done = subprocess.run(["lrelease", str(file)], capture_output=True, text=True, check=True)
    assert "2 finished and 0 unfinished" in done.stdout
