"""Android's resources, .resx and .stringsdict."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from triptych_documents.errors import DamagedDocumentError

from .roundtrips import read, shown, texts, translated, turned

ANDROID = r"""<?xml version="1.0" encoding="utf-8"?>
<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2">
    <!-- a comment -->
    <string name="app" translatable="false">My App</string>
    <string name="a">Don\'t open the \"door\" now</string>
    <string name="b">Hello <b>big</b> world<br/> &amp; <i>friends</i></string>
    <string name="c">Delete <xliff:g id="n" example="5">%1$d</xliff:g> files</string>
    <string name="d"><![CDATA[<a href="x">Terms of service</a>]]></string>
    <string name="e">@string/a</string>
    <string name="f"> First line\nA line
        in two \u00e9 lines </string>
    <string name="g">"  A quoted
 text "</string>
    <string name="h"/>
    <plurals name="files"><item quantity="one">%d file</item><item quantity="other">%d files</item></plurals>
    <string-array name="days"><item>Monday</item><item>Tuesday</item></string-array>
    <color name="x">red and blue</color>
</resources>
"""
RESX = """<root>
  <resheader name="version"><value>the version</value></resheader>
  <data name="a" xml:space="preserve"><value>Open the
file &lt;now&gt;</value><comment>A comment</comment></data>
  <data name="b" type="System.Resources.ResXFileRef"><value>a picture</value></data>
  <data name="&gt;&gt;c.Type"><value>System.Windows.Button, System</value></data>
</root>
"""
STRINGSDICT = """<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0"><dict><key>count</key><dict>
<key>NSStringLocalizedFormatKey</key><string>Delete %#@files@ now</string>
<key>files</key><dict>
<key>NSStringFormatSpecTypeKey</key><string>the type</string>
<key>one</key><string>one file</string>
<key>other</key><string>%d files</string>
</dict></dict></dict></plist>
"""


def test_texts_of_android_are_units() -> None:
    document = read("android", ANDROID)
    assert [(unit.where, text) for unit, text in zip(document.units, shown(document), strict=True)] == [
        ("a", 'Don\'t open the "door" now'),
        ("b", "Hello ⟦<b>⟧big⟦</b>⟧ world⟦<br/>⟧ & ⟦<i>⟧friends⟦</i>⟧"),
        ("c", 'Delete ⟦<xliff:g id="n" example="5">%1$d</xliff:g>⟧ files'),
        ("d", '<a href="x">Terms of service</a>'),
        ("f", "First line\nA line in two é lines"),
        ("g", "  A quoted\n text "),
        ("files.one", "%d file"),
        ("files.other", "%d files"),
        ("days.0", "Monday"),
        ("days.1", "Tuesday"),
    ]
    changed = turned("android", ANDROID)
    assert 'dON\\\'T OPEN THE \\"DOOR\\" NOW<' in changed
    assert '<![CDATA[<A HREF="X">tERMS' in changed
    assert "> fIRST LINE\\na LINE IN TWO é LINES <" in changed
    assert '>"  a QUOTED\\n TEXT "<' in changed
    assert ">\\@home is<" in translated("android", ANDROID, "@home is")


def test_texts_of_resx_are_units() -> None:
    assert texts(read("resx", RESX)) == ["Open the\nfile <now>"]
    assert turned("resx", RESX) == RESX.replace("Open the\nfile &lt;now", "oPEN THE\nFILE &lt;NOW").replace("NOW&gt;", "NOW>")


def test_plural_forms_of_stringsdict_are_units() -> None:
    document = read("stringsdict", STRINGSDICT)
    names = ["count.NSStringLocalizedFormatKey", "count.files.one", "count.files.other"]
    assert [unit.where for unit in document.units] == names
    assert texts(document) == ["Delete %#@files@ now", "one file", "%d files"]
    assert turned("stringsdict", STRINGSDICT) == STRINGSDICT.replace("Delete %#@files@ now", "dELETE %#@FILES@ NOW").replace(
        "one file", "ONE FILE"
    ).replace("%d files", "%D FILES")


@pytest.mark.parametrize("name", ["android", "resx", "stringsdict"])
def test_other_documents_are_rejected(name: str) -> None:
    with pytest.raises(DamagedDocumentError, match=r"^line 2: the root element is manifest, not "):
        read(name, "<!-- a -->\n<manifest/>")


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]) | st.sampled_from("\n\t\"'@?\\&<]>"), min_size=1))
def test_any_text_can_be_written(text: str) -> None:
    data = '<resources><string name="a">one text</string><string name="b">other text</string></resources>'
    changed = translated("android", data, f"one {text} text")
    assert etree.fromstring(changed.encode()).tag == "resources"
    assert texts(read("android", changed)) == [re.sub(" +", " ", f"one {text} text"), "other text"]
