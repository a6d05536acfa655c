"""Unit translation: requests, protected text, tag placement, and recovery from what models do wrong."""

import random
import re
import tracemalloc

import pytest

from triptych_documents.errors import OptionError
from triptych_documents.findings import FindingKind, Severity
from triptych_documents.rules import Term, TranslationRules
from triptych_documents.sentences import Alignment, Refusal, SentencePair, SentenceRequest, SentenceTranslation
from triptych_documents.translation.units import TranslatedUnit, UnitTranslator
from triptych_documents.unit import Code, Piece, Role, Unit, raw_text

from .. import translators
from ..translators import Reply, Translate, aligned, backwards, dropping, pieces, swapping, translated


def opening(raw: str, pair: int = 1) -> Code:
    return Code(raw, Role.OPEN, pair)


def closing(raw: str, pair: int = 1) -> Code:
    return Code(raw, Role.CLOSE, pair)


def alone(raw: str, shown: str = "", *, fixed: bool = False) -> Code:
    return Code(raw, Role.ALONE, 99, shown, fixed)


def done(text: str, translate: Translate, **rules: object) -> TranslatedUnit:
    unit = Unit((text,), "line 3", keeps_space=bool(rules.pop("keeps_space", False)))
    return translated([unit], translate, TranslationRules(source_language="en", target_language="de", **rules))[0]  # type: ignore[arg-type]


def requested(text: str | tuple[Piece, ...], translate: Translate = swapping, **rules: object) -> list[str]:
    """Texts of all requests."""
    found: list[str] = []

    def noted(request: SentenceRequest) -> Reply:
        found.append(request.text)
        return translate(request)

    pieces(text, noted, **rules)
    return found


@pytest.mark.parametrize(
    ("text", "requests"),
    [
        ("One is here. Two is there.", ["One is here.", "Two is there."]),
        ("Hello {name}!", ["Hello Tom!"]),
        ("HELLO {name}, READ %s", ["HELLO TOM, READ BOSTON"]),
        ("Delete %d of %d files", ["Delete 2013 of 2014 files"]),
        ('No file "%s": %s or %s (%s) is {a}-{b}', ["No file Tom: Boston or Paris Maria is Linux"]),
        ("Delete %<PRIu64> of %5<PRIdMAX>, not %<who>s", ["Delete 2013 of 2014, not Tom"]),
        ("See https://ex.org/a?b=c.", ["See Tom."]),
        ("%s: not found", ["not found"]),
        ("1. Open the file", ["Open the file"]),
        ("- Buy milk.\n* It is <b>cheap</b>. – Go.", ["Buy milk.", "It is cheap.", "Go."]),
        ("<b>- Buy</b> milk", ["- Buy milk"]),
        ("Path: /etc/hosts", ["Path:"]),
        ("The ``a()`` of *all* |x| and ``b``::", ["The Tom of all Boston and Paris"]),
        ("2 * 3 * 4 *p and \\*no\\* std::x page_", ["2 * 3 * 4 *p and \\*no\\* std::x Tom"]),
        ("See :ref:`the guide <g>`, `its page <a.b>`_ and :class:`A <b>`", ["See the guide, its page and Tom"]),
        ('~~Old~~ [text](http://a.b "c") [#f]_, [see] (this)', ["Old text Tom, [see] (this)"]),
        ("See `the code <g>` or <b>`", ["See Tom or Boston`"]),
        ("{a} {b} {c}", []),
        ("--- 12.5 ***", []),
        ("Press <b>OK</b> now", ["Press OK now"]),
        ("Call f() in `a b` or {x}'s y", ["Call Tom in Boston or Paris's y"]),
        ("Too   many\n spaces", ["Too many spaces"]),
        ("See `<a>.<b>` or 好。很好 here. Go on.", ["See Tom or Boston here.", "Go on."]),  # ends of sentences in items
        ("A sentence over\ntwo lines. Another.", ["A sentence over two lines.", "Another."]),
        (("Code: ", alone("`` `a b` ``", " `a b` ")), ["Code:"]),
        (("All ", alone("`FileName`", "FileName"), "s are read"), ["All Tom are read"]),
        ("V<sub>max</sub> is <u>a</u>ll x<sub>i</sub> of the n<sup>th</sup> try", ["Tom is all Boston of the nth try"]),
        (("Use ", alone("`1`", "1"), " of 11 or ", alone("`2`", "2"), " of 2"), ["Use 1 of 11 or 2013 of 2"]),
        (
            ("The ", alone("#", "23"), "rd try or ", alone("#", "5"), "MB"),
            ["The 23rd try or Tom", "The 2013rd try or Tom", "The try or Tom"],
        ),
        ("<ul><li>One</li><li>Two dogs</li></ul>Chapter 5<br>6 dogs", ["One", "Two dogs", "Chapter 5", "6 dogs"]),
        ("<0>Read</0> it<1/> or <2>", ["Read it or Tom"]),
        ("un\u00adable \u200fword\u200f 👋!", ["unable word!"]),
        ("🚀 Start it ❤️ now! 🎉 Stop 👩‍👧", ["Start it now!", "Stop"]),
        ("The end ........ 12", ["The end"]),
        ("The end . . . . 13", ["The end"]),
        ("Set {{ name | upper }} or ${a | b} or `c | d` now", ["Set Tom or Boston or Paris now"]),
        ("\uf015 Home \x1bpage\u200b is ≥ 5 or Word®", ["Home page is 5 or Word"]),
        ("Home | My site • File > Open → x > y", ["Home", "My site", "File", "Open", "x > y"]),
        ("Home » My site", ["Home", "My site"]),
        ("One apple|Many apples, {{ name|raw }} or true|false", ["One apple", "Many apples, Tom or true|false"]),
        ("{0} No apples|[1,Inf[ Many apples|]-5, 0[ Debt", ["No apples", "Many apples", "Debt"]),
        ("{0} files", ["Tom files"]),
        ("A\xa0red car <b>of</b>\xa0mine: 5\xa0km,\xa0all 6\xa0cars", ["A red car of mine: 5\xa0km,\xa0all 6 cars"]),
        ("It ends. <a>Home</a> <a>About us</a>", ["It ends.", "Home", "About us"]),
        ("<i><a>Home</a>\xa0- <x/><b>About us</b></i>", ["Home", "About us"]),
        (
            (opening("<a>"), "Home", closing("</a>"), opening("<a x>", 2), "news", closing("</a>", 2)),
            ["Home", "news"],
        ),
        ("<a>Home</a> / <a>My site</a> / Its page", ["Home", "My site", "Its page"]),
        ("<a>Home</a> > My site", ["Home", "My site"]),
        ("<a>His</a> / <a>her</a> book", ["His / her book"]),
        ("<b>His</b> / her book", ["His / her book"]),
        ("<b>Home</b><i>town</i>", ["Hometown"]),
        ("<a>Home</a> and <b>news</b>", ["Home and news"]),
        ("See <a>home</a> <b>news</b>", ["See home news"]),
        ("<a>Home</a> <b>news</b> now", ["Home news now"]),
        ("He said « my site » here", ["He said « my site » here"]),
    ],
)
def test_requests_are_plain_sentences(text: str | tuple[Piece, ...], requests: list[str]) -> None:
    assert requested(text) == requests


def test_alignment_is_requested_only_to_place_tags() -> None:
    translator = UnitTranslator(TranslationRules(source_language="en", target_language="de"))
    units = [("Plain words",), ("Hello {name}",), ("5 files",), ("a ", opening("<b>"), "b", closing("</b>"), " c")]
    requests = [request for key, unit in enumerate(units) for request in translator.add(key, Unit(unit, ""))]
    assert [request.aligned for request in requests] == [False, False, False, True]
    assert translator.add(9, Unit((opening("<b>"), "Hello there", closing("</b>")), "")) == [SentenceRequest("Hello there")]
    translator.answer(SentenceRequest("Hello there"), SentenceTranslation("Hallo"))
    assert raw_text(translator.done()[0].pieces) == "<b>Hallo</b>"


def test_equal_sentences_are_requested_once() -> None:
    translator = UnitTranslator(TranslationRules(source_language="en"))
    assert len(translator.add("a", Unit(("Same. Same. Other.",), ""))) == 2
    assert translator.add("b", Unit(("Other.",), "")) == []
    assert translator.answer(SentenceRequest("Other."), SentenceTranslation("O.")) == []
    assert [one.key for one in translator.done()] == ["b"]
    assert translator.waiting == 1
    assert translator.answer(SentenceRequest("Same."), SentenceTranslation("S.")) == []
    assert [one.pieces for one in translator.done()] == [("S. S. O.",)]
    assert translator.add("c", Unit(("Same.",), "")) == []
    assert [one.pieces for one in translator.done()] == [("S.",)]


def test_white_space_between_sentences_lines_and_columns_stays() -> None:
    assert pieces(" One is here.\n  Two is there. ", swapping) == (" oNE IS HERE.\n  tWO IS THERE. ",)
    text = "Name\tSize of it\n  - first\n\nlast    one\n"
    assert done(text, backwards, keeps_space=True).pieces == ("nAME\tIT OF sIZE\n  - FIRST\n\nLAST    ONE\n",)


def test_sentences_without_space_between_them_are_translated_with_one() -> None:
    unit = Unit(("今天很好。", opening("<b>"), "走吧。", closing("</b>"), alone("<br>", "\n", fixed=True), "完。"), "")
    rules = TranslationRules(source_language="zh", target_language="en")
    words = {"今天很好。": "Nice today.", "走吧。": "Let us go.", "完。": "End."}
    [one] = translated([unit], lambda request: SentenceTranslation(words[request.text]), rules)
    assert raw_text(one.pieces) == "Nice today. <b>Let us go.</b><br>End."


B, B_END, C, C_END = opening("<b>"), closing("</b>"), opening("<c>", 2), closing("</c>", 2)


@pytest.mark.parametrize(
    ("unit", "translate", "target"),
    [
        (("press ", B, "red button", B_END, " twice"), backwards, "TWICE <b>BUTTON RED</b> PRESS"),
        (("a ", B, "b ", C, "c", C_END, B_END, " d"), backwards, "D <b><c>C</c> B</b> A"),
        (("One ", B, "is here. Two is", B_END, " there."), swapping, "oNE <b>IS HERE. tWO IS</b> THERE."),
        (("red", alone("[1]"), " and blue", alone("[2]"), " things"), backwards, "THINGS BLUE[2] AND RED[1]"),
        (("one ", B, alone("<img>"), B_END, " two"), swapping, "ONE <b><img></b> TWO"),
        (("one two", alone("<br>", "\n", fixed=True), "three four"), backwards, "TWO ONE<br>FOUR THREE"),
        (("one two", alone("\n> ", " "), "three four"), backwards, "FOUR\n> THREE TWO ONE"),
        (("a 😀 b 5★, c",), swapping, "A 😀 B 5★, C"),
        (("a **big, red** (**x!**), 2**3 **kw b * c ** d",), swapping, "A **BIG, RED** (**X!**), 2**3 **KW B * C ** D"),
        (("press **red** twice",), backwards, "TWICE **RED** PRESS"),
        (("press ==red== twice",), backwards, "TWICE ==RED== PRESS"),
        (("a <0>x <1/>y</0>",), swapping, "A <0>X <1/>Y</0>"),
        (('a "b" 👋. C',), swapping, 'A "B" 👋. c'),
        (("c {x} 👋, d",), lambda request: aligned(request, "C Tom, D"), "C {x} 👋, D"),
        (("Run ", alone("`ls -l`", "ls -l"), " now"), backwards, "NOW `ls -l` rUN"),
        (("the H", B, "2", B_END, "O of 5 km", C, "-2", C_END), swapping, "THE H<b>2</b>O OF 5 km<c>-2</c>"),
        (("a 10", B, "6", B_END, " and NaHCO", C, "3", C_END), swapping, "A 10<b>6</b> AND NaHCO<c>3</c>"),
        (("a longword", B, C, "[1]", C_END, B_END, " here"), swapping, "A LONGWORD<b><c>[1]</c></b> HERE"),
        (("an end.", B, "*", B_END, " Of it.<i>1</i> And"), swapping, "AN END.<b>*</b> oF IT.<i>1</i> aND"),
        (("a word", B, "1", B_END, "a ", C, "7", C_END, " b"), swapping, "A <b>WORD1A</b> <c>7</c> B"),
        (("press <b>red</b> twice",), backwards, "TWICE <b>RED</b> PRESS"),
        (("press <i>", B, "the red</i> button", B_END, " twice"), swapping, "PRESS <i><b>THE RED</i> BUTTON</b> TWICE"),
        (  # the same letters, but not the same word
            ("dogs <b>die</b> here",),
            lambda request: aligned(request, "die Hunde sterben hier", (0, 0, 1, 2)),
            "die Hunde <b>sterben</b> hier",
        ),
    ],
)
def test_tags_follow_their_words(unit: tuple[Piece, ...], translate: Translate, target: str) -> None:
    assert raw_text(pieces(unit, translate)) == target


def test_without_an_alignment_tags_are_placed_by_proportion() -> None:
    found = translated([Unit(("one ", B, "two", B_END, " three"), "line 3")], translators.unaligned)[0]
    assert raw_text(found.pieces) == "ONE <b>TWO</b> THREE"
    assert [(one.kind, one.severity, one.where) for one in found.findings] == [(FindingKind.TAG, Severity.WARNING, "line 3")]


@pytest.mark.parametrize(
    ("translate", "number"),
    [(translators.dropping, "5"), (translators.doubling, "5"), (translators.garbling, "5qu"), (swapping, "5")],
)
def test_placeholders_and_numbers_come_through(translate: Translate, number: str) -> None:
    found = done("Hello {name}, you have 5 Files", translate)
    assert (found.pieces, found.findings) == ((f"hELLO {{name}}, YOU HAVE {number} fILES",), ())


@pytest.mark.parametrize("translate", [backwards, dropping])
def test_placeholders_that_programs_fill_in_order_keep_it(translate: Translate) -> None:
    [text] = pieces("Copy %s of %d files to %s, {} to {}", translate)
    assert re.findall(r"%\w|{}", str(text)) == ["%s", "%d", "%s", "{}", "{}"]
    assert pieces("Copy %s to %s", backwards) == ("cOPY %s TO %s",)
    assert pieces("Say %u at %X/%X", backwards) == ("sAY %u AT %X/%X",)  # of which two are protected as one
    code = pieces(("Call ", alone("`f({})`", "f({})"), " or ", alone("`{}`", "{}")), backwards)
    assert raw_text(code) == "`{}` OR `f({})` cALL"
    assert pieces("Copy %1$s to {b}", backwards) == ("{b} TO %1$s cOPY",)


def test_without_an_alignment_the_sentence_is_split_at_protected_text() -> None:
    def translate(request: SentenceRequest) -> Reply:
        return SentenceTranslation(" ".join(translators.STAND_IN.sub("", translators.swapped(request.text)).split()))

    assert done("Open {name} in it", translate).pieces == ("oPEN {name} IN IT",)


@pytest.mark.parametrize(
    ("source", "target", "good"),
    [("3.14 m", "314 m", False), ("5 of 7", "7 of 5", True), ("5 of 7", "5 of 5", False), ("MP3 file", "MP3-Datei", True)],
)
def test_a_wrong_number_is_requested_again(source: str, target: str, good: bool) -> None:
    requests = requested(source, lambda request: aligned(request, target if request.text == source else request.text))
    assert (len(requests) == 1) is good


def test_a_changed_name_is_replaced_by_a_word_and_put_back() -> None:
    assert done("Open PyTorch here", swapping).pieces == ("oPEN PyTorch HERE",)
    assert requested("Open PyTorch here", swapping) == ["Open PyTorch here", "Open Tom here"]


@pytest.mark.parametrize(
    ("acronym", "became", "good"),
    [
        ("ONNX", "ONNX", True),
        ("ONNX", "ONX", False),
        ("ONNX", "ONNNX", False),
        ("VNNI", "VN", False),
        ("DNA", "DNS", True),
        ("USA", "US", True),
        ("PROGRAM", "PROGRAMM", True),
        ("TESTS", "TEST", True),
    ],
)
def test_a_misspelt_acronym_is_requested_again(acronym: str, became: str, good: bool) -> None:
    source = f"The {acronym} file"
    requests = requested(source, lambda request: aligned(request, request.text.replace(acronym, became)))
    assert (len(requests) == 1) is good


def test_user_rules_protect_words_and_patterns() -> None:
    found = done("Open Settings in the Settings menu", swapping, keep=("Settings",))
    assert found.pieces == ("oPEN Settings IN THE Settings MENU",)
    assert requested("Play Stop! Go now", keep=("Stop! Go",))[0] == "Play Stop! Go now"
    assert requested("Hello @@user@@ there", placeholders=("@@[a-z]+@@",)) == ["Hello Tom there"]
    with pytest.raises(OptionError, match=r"placeholders\[0\]"):
        UnitTranslator(TranslationRules(placeholders=("(",)))


TERMS = (Term("settings", "Einstellungen"), Term("print", "drucken"))


@pytest.mark.parametrize(
    ("source", "response", "terms", "target"),
    [
        ("Open settings", "Öffne Einstellung", (Term("settings", "Einstellung"),), "Öffne Einstellung"),
        ("Settings of print", "Optionen von Druck", TERMS, "Einstellungen von drucken"),
    ],
)
def test_terms_are_kept_or_put_in_place(source: str, response: str, terms: tuple[Term, ...], target: str) -> None:
    found = done(source, lambda request: aligned(request, response), glossary=terms)
    assert (found.pieces, found.findings) == ((target,), ())


HALVES = "The first half of this sentence, and the second half of it"
LONG_WAY = "He said that it is a very, very, very long way from here"


def answering(text: str, truncated: bool = False, least: int = 0, word: str = "") -> Translate:
    """Answer requests that are longer than `least`, and have the word, with this text; swap the case of others."""

    def translate(request: SentenceRequest) -> Reply:
        is_meant = len(request.text) > least and word in request.text
        return SentenceTranslation(text, truncated=truncated) if is_meant else swapping(request)

    return translate


def refusing(request: SentenceRequest) -> Reply:
    return Refusal("unreadable") if "bad" in request.text else swapping(request)


@pytest.mark.parametrize(
    ("text", "translate", "target", "finding"),
    [
        ("Open settings", answering("Mach auf"), "Mach auf", "glossary warning"),
        ("one bad two", refusing, "ONE bad TWO", "refused error"),
        ("Short words", answering("Kurz", truncated=True), "Kurz", "truncated warning"),
        ("Short", answering("so " * 100, truncated=True), "Short", "truncated error"),
        ("one two bad four", answering("x\ufffd", word="bad"), "ONE TWO bad FOUR", "refused error"),
        ("cafe\u0301", swapping, "CAF\u00e9", "normalized note"),
        (HALVES, answering("lo", truncated=True, least=40), HALVES.swapcase(), ""),
        (HALVES, answering("Der Decoder-Decoder-Decoder-Test", least=40), HALVES.swapcase(), ""),
        (LONG_WAY, answering("Der Weg ist sehr, sehr, sehr lang, sagte er"), "Der Weg ist sehr, sehr, sehr lang, sagte er", ""),
        ("So long", answering("so lange, so lange, so lange"), "so lange, so lange, so lange", ""),
    ],
)
def test_problems_are_reported(text: str, translate: Translate, target: str, finding: str) -> None:
    found = done(text, translate, glossary=TERMS)
    assert found.pieces == (target,)
    assert [f"{one.kind.value} {one.severity.value}" for one in found.findings] == ([finding] if finding else [])


def test_invented_numbers_and_placeholders_are_reported() -> None:
    found = done("Hello there", lambda _: SentenceTranslation("Hallo {user} 7"))
    assert [one.message for one in found.findings] == [
        "number 7 appears only in the translation",
        "'{user}' appears only in the translation",
    ]
    method = done(
        "The %s() method and #{{one}}", lambda request: SentenceTranslation(request.text.replace("method", "Methode"))
    )
    assert not method.findings


def test_rejected_and_long_sentences_are_split() -> None:
    text = "one two, three four five"
    requests = requested(text, lambda request: Refusal("long") if len(request.text) > 12 else swapping(request))
    assert requests == [text, "one two,", "three four five", "three", "four five"]
    long = requested("aaaa bbbb, cccc dddd eeee ffff gggg hhhh iiii", max_characters=20)
    assert long == ["aaaa bbbb,", "cccc dddd eeee ffff", "gggg hhhh iiii"]


def test_pairs_are_sentences_as_readers_see_them() -> None:
    unit = Unit(("Open ", B, "it", B_END, " in\n", alone("`x`", "x"), ". 12."), "")
    assert translated([unit], swapping)[0].pairs == (SentencePair("Open it in x. 12.", "oPEN IT IN x. 12."),)
    assert translated([Unit(("Open <b>it</b> 🎉",), "")], swapping)[0].pairs == (
        SentencePair("Open <b>it</b> 🎉", "oPEN <b>IT</b> 🎉"),
    )


@pytest.mark.parametrize(
    "text",
    [part * 8_000 for part in ("word ", "aaaa", "日", "{{", "%%", "<a", "a_", "`a1", "a.", "a/", "😀")],
    ids=lambda text: text[:3],
)
def test_long_texts_stay_whole(text: str) -> None:
    assert translated([Unit((text,), "")], translators.identity)[0].pieces == (text,)


def test_the_result_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triptych_documents.translation.units.REMEMBERED_BYTES", 1 << 18)
    translator = UnitTranslator(TranslationRules())
    long = Alignment([(0, 1)] * 20, [(0, 1)] * 20, [[0.0] * 20] * 20)
    tracemalloc.start()
    for number in range(250):
        text = f"sentence {'x' * (number % 7)} {random.Random(number).random()}".replace("0.", "")
        for request in translator.add(number, Unit((text,), "")):
            translator.answer(request, SentenceTranslation(request.text, long))
        translator.done()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken < 1 << 20


def test_lone_surrogates_stay_and_do_not_block_other_units() -> None:
    broken = [Unit(("One \ud83d two. Three.",), "line 1"), Unit(("a", Code("<c>", Role.ALONE, 1, "\ud83d")), "line 2")]
    first, second, third = translated([*broken, Unit(("Four",), "line 3")], swapping, TranslationRules())
    assert [first.pieces, second.pieces] == [unit.pieces for unit in broken]
    for one in (first, second):
        [finding] = one.findings
        assert (finding.kind, finding.severity, finding.where) == (FindingKind.REFUSED, Severity.ERROR, one.unit.where)
        assert "U+D83D" in finding.message
    assert third.pieces != ("Four",)
