"""SubRip and WebVTT readers."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from triptych_documents.errors import DamagedDocumentError

from .roundtrips import read, shown, texts, translated, turned

FILM = """\
1
00:00:01,000 --> 00:00:04,000 X1:10 X2:20
{\\an8}<i>It was a dark
and stormy night.</i>

2
00:00:05,000 --> 00:00:06,500
- Who's there?
- <i>Nobody.</i>

3
00:00:07,000 --> 00:00:08,000
1984

00:00:09,000 --> 00:00:10,000
A cue <b>without</b> a <font color="#ff0000">number</font>\\Nhere

and a blank line
5
00:00:11,000 --> 00:00:12,000

"""


def test_cues_and_speakers_are_units() -> None:
    document = read("srt", FILM)
    assert shown(document) == [
        "⟦<i>⟧It was a dark and stormy night.⟦</i>⟧",
        "Who's there?",
        "⟦<i>⟧Nobody.⟦</i>⟧",
        "1984",
        'A cue ⟦<b>⟧without⟦</b>⟧ a ⟦<font color="#ff0000">⟧number⟦</font>⟧⟦\\N⟧here',
        "and a blank line",
    ]
    assert [unit.where for unit in document.units] == ["cue 1", "cue 2", "cue 2", "cue 3", "cue 4", "cue 4"]
    turned("srt", FILM)


def test_labels_of_speakers_and_sounds_start_units() -> None:
    film = "1\n00:00:01,000 --> 00:00:04,000\n[door opens]\nOLD MAN: Who's\nthere?\n<i>JOHN: Me:\nno One: I.</i>\n"
    document = read("srt", film)
    assert shown(document) == ["[door opens]", "OLD MAN: Who's there?", "⟦<i>⟧JOHN: Me: no One: I.⟦</i>⟧"]
    changed = document.render({1: ("Es ist der ALTE [x] NA: was für ein langer Satz das ist",)}).decode()
    assert "\nEs ist der ALTE [x] NA: was\nfür ein langer Satz das ist\n" in changed


@pytest.mark.parametrize(("kind", "head", "mark"), [("srt", "1\n", ">>"), ("vtt", "WEBVTT\n\n", "&gt;&gt;")])
def test_marks_of_new_speakers_stay(kind: str, head: str, mark: str) -> None:
    film = f"{head}00:00:01.000 --> 00:00:04.000\n{mark} ANNA: Hi\nthere.\n{mark}&gt;News\n"
    film = film if kind == "vtt" else film.replace("&gt;", ">")
    assert shown(read(kind, film)) == ["ANNA: Hi there.", "News"]
    assert translated(kind, film, "Hallo.") == film.replace("ANNA: Hi\nthere.", "Hallo.")
    assert texts(read(kind, translated(kind, film, ">> Hallo."))) == [">> Hallo.", "News"]


def test_times_and_dashes_stay_and_long_texts_have_two_lines() -> None:
    document = read("srt", FILM)
    open_tag, _, close_tag = document.units[0].pieces
    long = "Es war eine dunkle und stürmische Nacht in einem fernen Land."
    changed = document.render({0: (open_tag, long, close_tag), 1: ("Wer da?",)}).decode()
    assert changed == FILM.replace(
        "It was a dark\nand stormy night.", "Es war eine dunkle und stürmische\nNacht in einem fernen Land."
    ).replace("Who's there?", "Wer da?")


def test_line_ends_of_the_document_are_kept() -> None:
    film = "\ufeff1\r\n00:00:01,000 --> 00:00:02,000\r\nOne\r\ntwo\r\n\r\n"
    assert turned("srt", film) == film.replace("One\r\ntwo", "oNE TWO")
    assert translated("srt", film, "word " * 12).count("\r\n") == film.count("\r\n")


def test_more_than_two_lines_only_if_two_are_too_short() -> None:
    film = "1\n00:00:01,000 --> 00:00:02,000\nOne\n"
    assert translated("srt", film, "x" * 30 + " " + "y" * 30).count("\n") == 4
    assert translated("srt", film, "word " * 30).split("\n")[2:-1] == ["word word word word word word word word"] * 3 + [
        "word " * 5 + "word"
    ]


def test_breaks_and_tags_take_no_width() -> None:
    film = f"1\n00:00:01,000 --> 00:00:02,000\n{'a' * 30}\\N {'b' * 30}\n"
    document = read("srt", film)
    _, code, _ = document.units[0].pieces
    changed = document.render({0: ("word " * 4, code, " " + "word " * 10)}).decode().splitlines()
    assert changed[2:] == ["word word word word \\N word word word word word", "word word word word word"]
    film = '1\n00:00:01,000 --> 00:00:02,000\nOne <font color="#ff0000">two</font>\\Nthree\n'
    assert turned("srt", film) == film.replace("One", "oNE").replace("two", "TWO").replace("three", "THREE")


def test_placeholders_stay_on_one_line() -> None:
    film = "1\n00:00:01,000 --> 00:00:02,000\nOne\n"
    for text in ("word " * 7 + "{{ user name }} more words", "{ a b } " * 12, "word } " * 12):
        changed = translated("srt", film, text)
        assert all(line.count("{") == line.count("}") or "{" not in text for line in changed.splitlines())
        assert changed.count("\n") > film.count("\n")


@pytest.mark.parametrize("number", ["2\n", ""])
@pytest.mark.parametrize("times", ["-00:00:01,000 --> 00:00:02,000", "00:03,000 --> 00:04,000", "00:00:01,0000 --> 00:00:02,0"])
def test_a_cue_with_unreadable_times_is_reported_and_translated(times: str, number: str) -> None:
    film = f"1\n00:00:00,000 -> 00:00:01,000\nAt 5 -> 6\n\n{number}{times}\nSecond\n"
    document = read("srt", film)
    assert texts(document) == ["At 5 -> 6", "Second"]
    assert [finding.where for finding in document.findings] == ["cue 1, line 2", f"cue 2, line {5 + len(number.split())}"]
    assert times in document.findings[1].message
    assert turned("srt", film) == film.swapcase()


def test_files_without_times_are_rejected() -> None:
    with pytest.raises(DamagedDocumentError, match="line 1: not SubRip"):
        read("srt", "Some text\n")
    assert texts(read("srt", "\n")) == []


@example("00:00:01,000 --> 00:00:02,000")
@example("a {\\an8} b <\u2060b> a \\N c <i> {y}")
@given(st.text("ab <>{}\\N-/>1\u2060\n", min_size=1).filter(lambda text: text.strip()))
def test_any_text_can_be_written(text: str) -> None:
    changed = translated("srt", FILM, "x", text, "y")
    assert texts(read("srt", changed))[1] == " ".join(text.split())


def test_readable_text_is_not_escaped() -> None:
    assert "\na < b & c\n" in translated("srt", FILM, "x", "y", "z", "a < b & c")


WEB_FILM = """\
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


def test_cues_of_webvtt_are_units() -> None:
    document = read("vtt", WEB_FILM)
    assert shown(document) == [
        "We are in ⟦<c.loud>⟧New York⟦</c>⟧ City & its <streets>",
        "word⟦<00:05.500>⟧⟦<c>⟧ by⟦</c>⟧ word",
        "Yes\xa0!",
        "No.",
    ]
    assert [unit.where for unit in document.units] == ["cue intro", "cue 2", "cue 3", "cue 3"]
    changed = turned("vtt", WEB_FILM)
    assert changed[: changed.index("<v")] == WEB_FILM[: WEB_FILM.index("<v")]


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
def test_cues_of_webvtt_with_unreadable_times_are_translated_and_reported(times: str, finding: str) -> None:
    film = f"WEBVTT\n\n00:01.000 --> 00:02.000\nAt 5 -> 6\n\n{times}\nSecond\n\nNOTE 1:2 -> 3\n\n00:09.000 --> 00:10.000\nEnd\n"
    document = read("vtt", film)
    assert texts(document) == ["At 5 -> 6", "Second", "End"]
    assert [f"{each.where}: {each.message}"[: len(finding)] for each in document.findings] == [finding]


def test_text_outside_of_cues_is_reported() -> None:
    film = "WEBVTT\nKind: captions\n\nREGION\nid:x\n\n00:01.000 --> 00:02.000\nOne\n\nand after an empty line\n"
    [finding] = read("vtt", film).findings
    assert (finding.where, "not shown and not translated" in finding.message) == ("line 10", True)


@given(st.text("ab <>&;-/>1\u2060\n\xa0", min_size=1).filter(lambda text: text.strip(" \n")))
def test_any_text_can_be_written_as_webvtt(text: str) -> None:
    changed = translated("vtt", WEB_FILM, "x", "y", text)
    assert texts(read("vtt", changed))[2] == " ".join(part for part in text.replace("\n", " ").split(" ") if part)
