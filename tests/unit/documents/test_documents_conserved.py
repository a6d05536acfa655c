"""Documents keep their parts whatever a translator does."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from html import escape

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triptych_documents.format import ReadOptions
from triptych_documents.unit import Unit

from .formats.roundtrips import read
from .generated import HOLDERS
from .test_conserved import ANY
from .translators import Translate, translated

FEW = settings(max_examples=10, suppress_health_check=list(HealthCheck))
PLACEHOLDERS = tuple(holder for holder in HOLDERS if not set(holder) & set("`<&_#"))  # others are markup to some formats

Paragraph = Sequence[tuple[str, str]]  # how a part is marked up, and its words

words = st.lists(
    st.one_of(
        st.sampled_from(("Open", "the", "red", "file", "and", "print", "it", "two.", "Then", "go,")),
        st.sampled_from(PLACEHOLDERS),
        st.sampled_from(("3", "1,234.5", "2021")),
    ),
    min_size=1,
    max_size=6,
).map(" ".join)
parts = st.lists(st.tuples(st.sampled_from(("", "", "bold", "link", "code")), words), min_size=1, max_size=4)
# To some formats a line that begins with a sign is something else.
paragraphs = st.lists(parts.map(lambda found: [("", "Say"), *found]), min_size=1, max_size=4)


def marked(paragraph: Paragraph, marks: dict[str, tuple[str, str]], written: Callable[[str], str]) -> str:
    return " ".join(marks[kind][0] + written(text) + marks[kind][1] for kind, text in paragraph)


def plain(paragraph: Paragraph) -> str:
    return " ".join(text for _, text in paragraph)


def html(body: Sequence[Paragraph]) -> str:
    marks = {"": ("", ""), "bold": ("<b>", "</b>"), "link": ('<a href="x?a=1">', "</a>"), "code": ("<code>", "</code>")}
    return "<html><body>" + "".join(f"<p>{marked(one, marks, escape)}</p>\n" for one in body) + "</body></html>\n"


def markdown(body: Sequence[Paragraph]) -> str:
    marks = {"": ("", ""), "bold": ("**", "**"), "link": ("[", "](x.html)"), "code": ("`", "`")}
    return "\n\n".join(marked(one, marks, str) for one in body) + "\n"


def xliff(body: Sequence[Paragraph]) -> str:
    marks = {"": ("", ""), "bold": ('<g id="1">', "</g>"), "link": ('<g id="2">', "</g>"), "code": ('<x id="3"/>', "")}
    unit = '<trans-unit id="{}"><source>{}</source></trans-unit>'
    units = "".join(unit.format(number, marked(one, marks, escape)) for number, one in enumerate(body))
    head = '<file original="x" source-language="en" target-language="de" datatype="plaintext"><body>'
    return f'<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">{head}{units}</body></file></xliff>\n'


def srt(body: Sequence[Paragraph]) -> str:
    cue = "{0}\n00:00:0{0},000 --> 00:00:0{0},900\n{1}\n"
    return "\n".join(cue.format(number + 1, plain(one)) for number, one in enumerate(body))


def linguist(body: Sequence[Paragraph]) -> str:
    marks = {"": ("", ""), "bold": ("<b>", "</b>"), "link": ('<a href="x?a=1">', "</a>"), "code": ("<br/>", "")}
    messages = "".join(f"<message><source>{escape(marked(one, marks, str))}</source></message>\n" for one in body)
    return f'<TS language="de"><context><name>A</name>{messages}</context></TS>\n'


def xcstrings(body: Sequence[Paragraph]) -> str:
    strings = {f"{number} {plain(one)}": {} for number, one in enumerate(body)}
    return json.dumps({"sourceLanguage": "en", "strings": strings}, indent=2)


WRITERS = {"html": html, "markdown": markdown, "xliff": xliff, "srt": srt, "qt-ts": linguist, "xcstrings": xcstrings}
OPTIONS = ReadOptions(source_language="en", target_language="de", retranslate=True)


def check(name: str, body: Sequence[Paragraph], translate: Translate) -> None:
    document = read(name, WRITERS[name](body), OPTIONS)
    done = translated(document.units, translate)
    rendered = document.render({index: one.pieces for index, one in enumerate(done)})
    again = read(name, rendered, OPTIONS).units
    assert len(again) == len(document.units)
    for before, after in zip(document.units, again, strict=True):
        assert Counter(code.raw for code in after.codes) == Counter(code.raw for code in before.codes)
        assert placeholders(after) == placeholders(before)
    written = " ".join(rendered.decode().replace("\\", "").split())  # without Markdown's escapes and subtitles' lines
    source = WRITERS[name](body)
    for holder in PLACEHOLDERS:
        assert written.count(holder) >= source.count(holder), holder


def placeholders(unit: Unit) -> Counter[str]:
    return Counter({holder: unit.text.count(holder) for holder in PLACEHOLDERS})


@pytest.mark.parametrize("name", WRITERS)
@FEW
@given(body=paragraphs, translate=ANY)
def test_documents_keep_their_parts(name: str, body: Sequence[Paragraph], translate: Translate) -> None:
    check(name, body, translate)
