"""WebVTT reader."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triptych_documents.errors import DamagedDocumentError

from .roundtrips import read, shown, texts, translated, turned

FILM = """\
WEBVTT - A film
Kind: captions

STYLE
::cue { color: white }

NOTE
This is a comment
of two lines

intro
00:01.000 --> 00:04.000 align:start
<v Roger Bingham>We are in <c.loud>New York</c>
City &amp; its &lt;streets&gt;

00:05.000 --> 00:06.000
<00:05.100>word<00:05.500><c> by</c> word

01:00:07.000 --> 01:00:08.000
- Yes&nbsp;!
- No.
"""


def test_cues_are_units() -> None:
    document = read("vtt", FILM)
    assert shown(document) == [
        "We are in ⟦<c.loud>⟧New York⟦</c>⟧ City & its <streets>",
        "word⟦<00:05.500>⟧⟦<c>⟧ by⟦</c>⟧ word",
        "Yes\xa0!",
        "No.",
    ]
    assert [unit.where for unit in document.units] == ["cue intro", "cue 2", "cue 3", "cue 3"]
    changed = turned("vtt", FILM)
    assert changed[: changed.index("<v")] == FILM[: FILM.index("<v")]


def test_each_voice_at_the_start_of_a_line_is_a_unit() -> None:
    film = "WEBVTT\n\n00:01.000 --> 00:02.000\n<v.loud Mary>The sea\nis blue\n<v Bob>The sky <v Ann>is too\n"
    assert shown(read("vtt", film)) == ["The sea is blue", "The sky ⟦<v Ann>⟧is too"]


def test_markup_characters_are_escaped() -> None:
    film = "WEBVTT\n\n00:01.000 --> 00:02.000\nOne\n"
    assert translated("vtt", film, "a <b> --> & c") == film.replace("One", "a &lt;b&gt; --&gt; &amp; c")


def test_the_header_is_required() -> None:
    for text in ("00:01.000 --> 00:02.000\nOne\n", "WEBVTTx\n", ""):
        with pytest.raises(DamagedDocumentError, match="line 1: not WebVTT"):
            read("vtt", text)
    assert texts(read("vtt", "\ufeffWEBVTT")) == []


@pytest.mark.parametrize(
    ("times", "finding"),
    [
        ("00:03,000 --> 00:04,000", "cue 2, line 6: times not like 00:01.000 --> 00:02.000"),
        ("id\n-00:03.000 --> 00:04.000", "cue id, line 7: times not like"),
        ("00:03.000 -> 00:04.000", "cue 2, line 6: times not like"),
    ],
)
def test_cues_with_unreadable_times_are_translated_and_reported(times: str, finding: str) -> None:
    film = f"WEBVTT\n\n00:01.000 --> 00:02.000\nAt 5 -> 6\n\n{times}\nSecond\n\nNOTE 1:2 -> 3\n\n00:09.000 --> 00:10.000\nEnd\n"
    document = read("vtt", film)
    assert texts(document) == ["At 5 -> 6", "Second", "End"]
    assert [f"{each.where}: {each.message}"[: len(finding)] for each in document.findings] == [finding]


def test_text_outside_of_cues_is_reported() -> None:
    film = "WEBVTT\nKind: captions\n\nREGION\nid:x\n\n00:01.000 --> 00:02.000\nOne\n\nand after an empty line\n"
    [finding] = read("vtt", film).findings
    assert (finding.where, "not shown and not translated" in finding.message) == ("line 10", True)


@settings(max_examples=60)
@given(st.text("ab <>&;-/>1\u2060\n\xa0", min_size=1).filter(lambda text: text.strip(" \n")))
def test_any_text_can_be_written(text: str) -> None:
    changed = translated("vtt", FILM, "x", "y", text)
    assert texts(read("vtt", changed))[2] == " ".join(part for part in text.replace("\n", " ").split(" ") if part)
