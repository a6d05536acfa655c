"""Inline codes and line wrapping."""

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from triptych_documents.formats.shared.inline_codes import ScannedPart, ScannedTag, coded, core, pieces_of, soft
from triptych_documents.formats.shared.wrapping import balanced, words_of, wrapped
from triptych_documents.unit import Code, Role

BREAK = ScannedTag("<br>", Role.ALONE, shown="\n", fixed=True)
PICTURE = ScannedTag("<img>", Role.ALONE)
SAMPLE = ScannedTag("`x`", Role.ALONE, shown="x")


def opens(name: str) -> ScannedTag:
    return ScannedTag(f"<{name}>", Role.OPEN, name)


def closes(name: str) -> ScannedTag:
    return ScannedTag(f"</{name}>", Role.CLOSE, name)


def parts(*contents: str | ScannedTag) -> list[ScannedPart]:
    """Return parts with their lengths as spans."""
    lengths = [len(content if isinstance(content, str) else content.raw) for content in contents]
    places = pairwise(accumulate(lengths, initial=0))
    return [ScannedPart(content, start, end) for content, (start, end) in zip(contents, places, strict=True)]


def roles(*contents: str | ScannedTag) -> list[tuple[Role, int]]:
    return [(piece.role, piece.pair) for piece in coded(parts(*contents)) if isinstance(piece, Code)]


def test_unpaired_and_crossing_tags_stand_alone() -> None:
    assert roles(closes("a"), opens("a")) == [(Role.ALONE, 0), (Role.ALONE, 1)]
    assert roles(opens("a"), opens("b"), closes("a"), closes("b")) == [
        (Role.OPEN, 0),
        (Role.ALONE, 1),
        (Role.CLOSE, 0),
        (Role.ALONE, 2),
    ]


def test_the_core_has_no_invisible_parts_at_its_ends() -> None:
    found = core(parts("  ", PICTURE, " text ", opens("a"), "more", closes("a"), " ", BREAK, closes("b")))
    assert (found[0].start, found[-1].end) == (8, 24)
    assert [piece if isinstance(piece, str) else piece.raw for piece in pieces_of(found)] == ["text ", "<a>", "more", "</a>"]
    assert len(core(parts(SAMPLE, " text"))) == 2
    assert core(parts(" ", PICTURE, SAMPLE)) == ()


def test_white_space_written_as_an_entity_is_kept() -> None:
    assert core([ScannedPart(" x", 0, 6)]) == [ScannedPart(" x", 0, 6)]


@given(st.lists(st.sampled_from(["a ", opens("a"), closes("a"), opens("b"), closes("b"), SAMPLE, BREAK]), max_size=12))
def test_pairs_are_well_nested_and_every_code_has_a_number(contents: list[str | ScannedTag]) -> None:
    opened: list[int] = []
    numbers: list[int] = []
    for role, pair in roles(*contents):
        if role is Role.CLOSE:
            assert opened.pop() == pair
            continue
        numbers.append(pair)
        if role is Role.OPEN:
            opened.append(pair)
    assert opened == []
    assert numbers == list(range(len(numbers)))


def test_soft_white_space_is_collapsed() -> None:
    code = Code("<b>", Role.ALONE, 0)
    assert soft((" a\n b", "", " ", code, "\t\xa0")) == ("a b ", code, " \xa0")


def test_codes_stay_with_adjacent_words() -> None:
    code = Code("<a b>", Role.ALONE, 0)
    assert words_of(("one ", code, "two three", code), str.upper) == ["ONE", "<a b>TWO", "THREE<a b>"]


def test_line_ends_of_codes_end_lines() -> None:
    assert wrapped(["one", "two\\\nthree", "four"], 10) == ["one two\\", "three four"]


@given(st.lists(st.text("abc-", min_size=1, max_size=9), min_size=1), st.integers(5, 30), st.integers(0, 4))
def test_no_word_is_lost_and_lines_are_full(words: list[str], width: int, used: int) -> None:
    lines = wrapped(words, width, used, lambda word: not word.startswith("-"))
    assert " ".join(lines).split(" ") == words
    assert not any(line.startswith("-") for line in lines[1:])
    for number, (line, after) in enumerate(pairwise(lines)):
        assert len(line) + 1 + len(after.split(" ")[0]) > width - (used if number == 0 else 0)


def test_two_lines_are_of_nearly_equal_length() -> None:
    assert balanced(["one", "two", "three", "four", "five", "six"], 20) == ["one two three", "four five six"]
    assert balanced(["one", "two"], 20) == ["one two"]
    assert balanced(["word"] * 9, 14) == ["word word word"] * 3
