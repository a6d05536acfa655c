"""What is asked, what is kept, and what becomes of what models do wrong."""

import random
import tracemalloc

import pytest

from triptych_documents.errors import OptionError
from triptych_documents.findings import FindingKind, Severity
from triptych_documents.rules import Term, TranslationRules
from triptych_documents.sentences import Alignment, Refusal, SentencePair, SentenceRequest, SentenceTranslation
from triptych_documents.translation.units import TranslatedUnit, UnitTranslator
from triptych_documents.unit import Code, Piece, Role, Unit

from .. import translators
from ..translators import Reply, aligned, backwards, pieces, swapping, translated


def opening(raw: str, pair: int = 1) -> Code:
    return Code(raw, Role.OPEN, pair)


def closing(raw: str, pair: int = 1) -> Code:
    return Code(raw, Role.CLOSE, pair)


def alone(raw: str, shown: str = "", *, fixed: bool = False) -> Code:
    return Code(raw, Role.ALONE, 99, shown, fixed)


def written(found: tuple[Piece, ...]) -> str:
    return "".join(piece.raw if isinstance(piece, Code) else piece for piece in found)


def done(text: str, translate: translators.Translate, **rules: object) -> TranslatedUnit:
    unit = Unit((text,), "line 3", keeps_space=bool(rules.pop("keeps_space", False)))
    return translated([unit], translate, TranslationRules(source_language="en", target_language="de", **rules))[0]  # type: ignore[arg-type]


def asked(text: str | tuple[Piece, ...], translate: translators.Translate = swapping, **rules: object) -> list[str]:
    """What a translator reads."""
    found: list[SentenceRequest] = []
    pieces(text, lambda ask: (found.append(ask), translate(ask))[1], **rules)
    return [ask.text for ask in found]


SAID = [  # text, what the translator is asked first
    ("One is here. Two is there.", ["One is here.", "Two is there."]),
    ("Hello {name}!", ["Hello Tom!"]),
    ("Delete %d of %d files", ["Delete 2013 of 2014 files"]),
    ("See https://ex.org/a?b=c.", ["See Tom."]),
    ("%s: not found", ["not found"]),
    ("1. Open the file", ["Open the file"]),
    ("Path: /etc/hosts", ["Path:"]),
    ("{a} {b} {c}", []),
    ("--- 12.5 ***", []),
    ("Press <b>OK</b> now", ["Press OK now"]),
    ("Call f() in `a b` or {x}'s y", ["Call Tom in Boston or Paris's y"]),
    ("Too   many\n spaces", ["Too many spaces"]),
]


@pytest.mark.parametrize(("text", "asks"), SAID)
def test_the_translator_reads_plain_words(text: str, asks: list[str]) -> None:
    assert asked(text) == asks


def test_only_what_must_be_placed_asks_for_an_alignment() -> None:
    work = UnitTranslator(TranslationRules(source_language="en", target_language="de"))
    units = [("Plain words",), ("Hello {name}",), ("5 files",), ("a ", opening("<b>"), "b", closing("</b>"), " c")]
    asks = [ask for key, unit in enumerate(units) for ask in work.add(key, Unit(unit, ""))]
    assert [ask.aligned for ask in asks] == [False, False, False, True]


def test_equal_sentences_are_asked_once() -> None:
    work = UnitTranslator(TranslationRules(source_language="en"))
    assert len(work.add("a", Unit(("Same. Same. Other.",), ""))) == 2
    assert work.add("b", Unit(("Other.",), "")) == []
    assert work.answer(SentenceRequest("Other."), SentenceTranslation("O.")) == []
    assert [one.key for one in work.done()] == ["b"]
    assert work.waiting == 1
    assert work.answer(SentenceRequest("Same."), SentenceTranslation("S.")) == []
    assert [one.pieces for one in work.done()] == [("S. S. O.",)]
    assert work.add("c", Unit(("Same.",), "")) == []
    assert [one.pieces for one in work.done()] == [("S.",)]


def test_white_space_between_sentences_stays() -> None:
    assert pieces(" One is here.\n  Two is there. ", swapping) == (" oNE IS HERE.\n  tWO IS THERE. ",)


def test_lines_and_columns_stay_where_white_space_counts() -> None:
    text = "Name\tSize of it\n  - first\n\nlast    one\n"
    assert done(text, backwards, keeps_space=True).pieces == ("nAME\tIT OF sIZE\n  FIRST -\n\nLAST    ONE\n",)


def test_soft_lines_are_no_ends_of_sentences() -> None:
    assert asked("A sentence over\ntwo lines. Another.") == ["A sentence over two lines.", "Another."]


def test_a_pair_follows_its_words() -> None:
    found = pieces(("press ", opening("<b>"), "red button", closing("</b>"), " twice"), backwards)
    assert written(found) == "TWICE <b>BUTTON RED</b> PRESS"


def test_pairs_inside_of_pairs() -> None:
    unit = ("a ", opening("<1>", 1), "b ", opening("<2>", 2), "c", closing("</2>", 2), closing("</1>", 1), " d")
    assert written(pieces(unit, backwards)) == "D <1><2>C</2> B</1> A"


def test_a_pair_around_all_needs_no_alignment() -> None:
    work = UnitTranslator(TranslationRules())
    asks = work.add(0, Unit((opening("<b>"), "Hello there", closing("</b>")), ""))
    assert asks == [SentenceRequest("Hello there")]
    work.answer(asks[0], SentenceTranslation("Hallo"))
    assert written(work.done()[0].pieces) == "<b>Hallo</b>"


def test_a_pair_over_sentences() -> None:
    unit = ("One ", opening("<b>"), "is here. Two is", closing("</b>"), " there.")
    assert written(pieces(unit, swapping)) == "oNE <b>IS HERE. tWO IS</b> THERE."


def test_a_mark_stays_at_its_word() -> None:
    unit = ("red", alone("[1]"), " and blue", alone("[2]"), " things")
    assert written(pieces(unit, backwards)) == "THINGS BLUE[2] AND RED[1]"


def test_empty_pairs_stay_together() -> None:
    unit = ("one ", opening("<a>"), alone("<img>"), closing("</a>"), " two")
    assert written(pieces(unit, swapping)) == "ONE <a><img></a> TWO"


def test_nothing_moves_over_what_is_fixed() -> None:
    unit = ("one two", alone("<br>", "\n", fixed=True), "three four")
    assert written(pieces(unit, backwards)) == "TWO ONE<br>FOUR THREE"


def test_white_space_that_is_markup_stays_white_space() -> None:
    unit = ("one two", alone("\n> ", " "), "three four")
    assert written(pieces(unit, backwards)) == "FOUR\n> THREE TWO ONE"


def test_what_a_code_shows_is_a_word_of_the_sentence() -> None:
    unit = ("Run ", alone("`ls -l`", "ls -l"), " now")
    assert asked(unit) == ["Run Tom now"]
    assert written(pieces(unit, backwards)) == "NOW `ls -l` rUN"


def test_tags_of_the_text_are_placed_like_codes() -> None:
    assert pieces("press <b>red</b> twice", backwards) == ("TWICE <b>RED</b> PRESS",)


def test_without_an_alignment_marks_are_placed_by_proportion() -> None:
    unit = Unit(("one ", opening("<b>"), "two", closing("</b>"), " three"), "line 3")
    found = translated([unit], translators.unaligned)[0]
    assert written(found.pieces) == "ONE <b>TWO</b> THREE"
    assert [(one.kind, one.severity, one.where) for one in found.findings] == [(FindingKind.TAG, Severity.WARNING, "line 3")]


LADDER = [  # what a translator does with words that stand for something
    (translators.dropping, "hELLO {name}, YOU HAVE 5 fILES"),
    (translators.doubling, "hELLO {name}, YOU HAVE 5 fILES"),
    (translators.garbling, "hELLO {name}, YOU HAVE 5qu fILES"),
    (swapping, "hELLO {name}, YOU HAVE 5 fILES"),
]


@pytest.mark.parametrize(("translate", "target"), LADDER)
def test_placeholders_and_numbers_come_through(translate: translators.Translate, target: str) -> None:
    found = done("Hello {name}, you have 5 Files", translate)
    assert found.pieces == (target,)
    assert found.findings == ()


def test_without_an_alignment_the_sentence_is_cut_at_what_must_be_kept() -> None:
    def translate(ask: SentenceRequest) -> Reply:
        return SentenceTranslation(" ".join(translators.STAND_IN.sub("", translators.swapped(ask.text)).split()))

    assert done("Open {name} in it", translate).pieces == ("oPEN {name} IN IT",)


@pytest.mark.parametrize(
    ("source", "target", "good"),
    [
        ("1,234.5 m", "1.234,5 m", True),
        ("1,234.5 m", "1\u202f234,5 m", True),
        ("3.14 m", "3,14 m", True),
        ("3.14 m", "3.14 m", True),
        ("3.14 m", "314 m", False),
        ("12345 m", "1245 m", False),
        ("5 of 7", "7 of 5", True),
        ("5 of 7", "5 of 5", False),
        ("MP3 file", "MP3-Datei", True),
    ],
)
def test_numbers_may_have_the_signs_of_the_target_language(source: str, target: str, good: bool) -> None:
    asks = asked(source, lambda ask: aligned(ask, target if ask.text == source else ask.text))
    assert (len(asks) == 1) is good


def test_what_is_invented_is_reported() -> None:
    found = done("Hello there", lambda _: SentenceTranslation("Hallo {user} 7"))
    assert [one.message for one in found.findings] == ["'7' is only in the translation", "'{user}' is only in the translation"]


def test_words_to_keep() -> None:
    found = done("Open Settings in the Settings menu", swapping, keep=("Settings",))
    assert found.pieces == ("oPEN Settings IN THE Settings MENU",)


TERMS = (Term("settings", "Einstellungen"), Term("print", "drucken"))


def glossary(text: str) -> translators.Translate:
    """Answers every sentence with `text`, word for word."""
    return lambda ask: aligned(ask, text)


def test_a_term_that_is_there_is_left_alone() -> None:
    found = done("Open settings", glossary("Öffne Einstellung"), glossary=(Term("settings", "Einstellung"),))
    assert (found.pieces, found.findings) == (("Öffne Einstellung",), ())


def test_a_term_replaces_the_words_that_stand_for_it() -> None:
    assert done("Settings of print", glossary("Optionen von Druck"), glossary=TERMS).pieces == ("Einstellungen von drucken",)


def test_a_term_that_cannot_be_had_is_reported() -> None:
    found = done("Open settings", lambda _: SentenceTranslation("Mach auf"), glossary=TERMS)
    assert found.pieces == ("Mach auf",)
    assert [(one.kind, one.severity) for one in found.findings] == [(FindingKind.GLOSSARY, Severity.WARNING)]


def test_what_the_model_refuses_is_halved() -> None:
    asks = asked("one two, three four five", lambda ask: Refusal("long") if len(ask.text) > 12 else swapping(ask))
    assert asks == ["one two, three four five", "one two,", "three four five", "three", "four five"]


def test_a_word_that_the_model_refuses_stays() -> None:
    found = done("one bad two", lambda ask: Refusal("unreadable") if "bad" in ask.text else swapping(ask))
    assert found.pieces == ("ONE bad TWO",)
    assert [(one.kind, one.severity) for one in found.findings] == [(FindingKind.REFUSED, Severity.ERROR)]


def test_what_is_cut_off_is_cut_smaller() -> None:
    text = "The first half of this sentence, and the second half of this sentence"
    found = done(text, lambda ask: SentenceTranslation("lo lo", truncated=True) if len(ask.text) > 40 else swapping(ask))
    assert found.pieces == (text.swapcase(),)
    assert found.findings == ()


def test_what_is_cut_off_all_the_same_is_reported() -> None:
    found = done("Short words", lambda _: SentenceTranslation("Kurz", truncated=True))
    assert found.pieces == ("Kurz",)
    assert [one.kind for one in found.findings] == [FindingKind.TRUNCATED]


def test_a_translation_without_end_is_not_taken() -> None:
    found = done("Short", lambda _: SentenceTranslation("so " * 100, truncated=True))
    assert found.pieces == ("Short",)
    assert [(one.kind, one.severity) for one in found.findings] == [(FindingKind.TRUNCATED, Severity.ERROR)]


def test_long_sentences_are_cut_at_clauses_then_at_words() -> None:
    asks = asked("aaaa bbbb, cccc dddd eeee ffff gggg hhhh iiii", max_characters=20)
    assert asks == ["aaaa bbbb,", "cccc dddd eeee ffff", "gggg hhhh iiii"]


def test_text_that_is_not_normal_is_reported() -> None:
    found = done("cafe\u0301", swapping)
    assert found.pieces == ("CAF\u00e9",)
    assert [(one.kind, one.severity) for one in found.findings] == [(FindingKind.NORMALIZED, Severity.NOTE)]
    assert done("cafe\u0301", translators.identity).pieces == ("cafe\u0301",)


def test_pairs_are_sentences_as_readers_see_them() -> None:
    unit = Unit(("Open ", opening("<b>"), "it", closing("</b>"), " in\n", alone("`x`", "x"), ". 12."), "")
    assert translated([unit], swapping)[0].pairs == (SentencePair("Open it in x. 12.", "oPEN IT IN x. 12."),)


def test_a_pattern_that_is_none_is_an_error() -> None:
    with pytest.raises(OptionError, match=r"placeholders\[0\]"):
        UnitTranslator(TranslationRules(placeholders=("(",)))


def test_patterns_of_the_users_are_kept() -> None:
    assert asked("Hello @@user@@ there", placeholders=("@@[a-z]+@@",)) == ["Hello Tom there"]


@pytest.mark.parametrize(
    "text",
    [
        "word " * 40_000,
        "a" * 200_000,
        "日" * 50_000,
        "{" * 100_000,
        "%" * 100_000,
        "<a" * 50_000,
        "a_" * 50_000,
        "`a1" * 30_000,
    ],
)
def test_long_texts_take_no_more_asks_than_they_must(text: str) -> None:
    found = translated([Unit((text,), "")], translators.identity)[0]
    assert found.pieces == (text,)


def test_answers_are_forgotten_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triptych_documents.translation.units.REMEMBERED_BYTES", 1 << 18)
    work = UnitTranslator(TranslationRules())
    long = Alignment([(0, 1)] * 20, [(0, 1)] * 20, [[0.0] * 20] * 20)
    tracemalloc.start()
    for number in range(400):
        text = f"sentence {'x' * (number % 7)} {random.Random(number).random()}".replace("0.", "")
        for ask in work.add(number, Unit((text,), "")):
            work.answer(ask, SentenceTranslation(ask.text, long))
        work.done()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken < 1 << 20


def test_half_a_surrogate_pair_stays_and_holds_up_nothing() -> None:
    """No model, and no file, could have it."""
    broken = [Unit(("One \ud83d two. Three.",), "line 1"), Unit(("a", Code("<c>", Role.ALONE, 1, "\ud83d")), "line 2")]
    first, second, third = translated([*broken, Unit(("Four",), "line 3")], swapping, TranslationRules())
    assert [first.pieces, second.pieces] == [unit.pieces for unit in broken]
    for one in (first, second):
        assert [(found.kind, found.severity, found.where) for found in one.findings] == [
            (FindingKind.REFUSED, Severity.ERROR, one.unit.where)
        ]
        assert "U+D83D" in one.findings[0].message
    assert third.pieces != ("Four",)
